//! Makes a run by the case's own command.
//!
//! In goes a case with a `command`, out comes the directory in which that command left its run. No
//! shell is involved: the first word is the program, the others are its arguments as they stand. The
//! command runs in the case file's directory with the environment of this process and the variables of
//! [`variables`]; what it prints goes to the terminal's error stream as it comes, so that a report on
//! stdout stays whole. A run is never written over: each execution has a directory of its own, which
//! stays where the command failed or was stopped.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::case::Case;
use crate::error::{Error, Result};

/// Directory beside the case file that holds executed runs.
const RUNS: &str = "runs";

/// Most executions of one case that are kept apart by a number.
const MOST: u32 = 100_000;

/// How often a running command is looked at where it has a time limit.
const PAUSE: Duration = Duration::from_millis(20);

/// How a command is run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where the command is to leave its run; `None` for a directory that is not there yet, `runs/NAME-1`
    /// (`-2` …) beside the case file.
    pub out: Option<PathBuf>,
    /// After which the command is stopped.
    pub time_limit: Option<Duration>,
}

/// The variables that a command finds set, in this order:
///
/// * `GOLDLINE_OUT`: the directory to record into, absolute; it does not exist yet.
/// * `GOLDLINE_CASE`: the case file, absolute.
/// * `GOLDLINE_SEED`: the case's seed, where it has one.
/// * `GOLDLINE_INPUTS`: the case's inputs, absolute, where it names any.
pub fn variables(case: &Case, out: &Path) -> Vec<(String, OsString)> {
    let mut set = vec![
        ("GOLDLINE_OUT".to_string(), absolute(out).into_os_string()),
        ("GOLDLINE_CASE".to_string(), absolute(&case.path).into_os_string()),
    ];
    if let Some(seed) = case.seed {
        set.push(("GOLDLINE_SEED".into(), seed.to_string().into()));
    }
    if let Some(inputs) = &case.inputs {
        set.push(("GOLDLINE_INPUTS".into(), absolute(inputs).into_os_string()));
    }
    set
}

/// Runs the case's command and gives the directory of the run that it made.
///
/// # Errors
/// A case without `command`; a program that cannot be started, fails or takes too long; a command that
/// ends well and leaves no run.
pub fn execute(case: &Case, options: &Options) -> Result<PathBuf> {
    let Some((program, arguments)) = case.command.as_deref().and_then(<[String]>::split_first) else {
        return Err(Error::at(&case.path, "--execute needs a `command`, for example `command: [python, run.py]`"));
    };
    let out = match &options.out {
        Some(out) => free(out)?,
        None => fresh(case)?,
    };
    if let Some(parent) = out.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(|e| Error::io(parent, "make the directory", &e))?;
    }
    let mut command = Command::new(program);
    command.args(arguments).envs(variables(case, &out));
    if let Some(directory) = case.path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        command.current_dir(directory);
    }
    // What the command prints must not get between the lines of a report.
    command.stdin(Stdio::null()).stdout(Stdio::from(std::io::stderr()));
    #[cfg(unix)]
    if options.time_limit.is_some() {
        // A group of its own can be stopped as a whole. Without a limit the command stays in this one, so
        // that an interrupt at the terminal reaches it.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
    }
    let started = Instant::now();
    let mut child =
        command.spawn().map_err(|e| Error::at(&case.path, format_args!("cannot run `{program}`: {}", reason(&e))))?;
    let ended = wait(&mut child, options.time_limit, started)
        .map_err(|e| Error::at(&case.path, format_args!("cannot wait for `{program}`: {e}")))?;
    let failed = |what: fmt::Arguments<'_>| {
        let left = if out.exists() { "; what it recorded until then is in " } else { "; it recorded nothing in " };
        Error::at(&case.path, format_args!("`{}` {what}{left}{}", Shown(program, arguments), out.display()))
    };
    match ended {
        None => {
            let limit = options.time_limit.unwrap_or_default().as_secs_f64();
            Err(failed(format_args!("was stopped after {limit} s")))
        }
        Some(status) if !status.success() => Err(failed(format_args!("failed ({status})"))),
        Some(_) if !out.is_dir() => Err(failed(format_args!("ended well, yet left no run"))),
        Some(_) => Ok(out),
    }
}

/// How the child ended; `None` where it was stopped.
fn wait(child: &mut Child, limit: Option<Duration>, started: Instant) -> std::io::Result<Option<ExitStatus>> {
    let Some(limit) = limit else { return child.wait().map(Some) };
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if started.elapsed() >= limit {
            stop(child)?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(PAUSE.min(limit));
    }
}

/// Stops the child and what it started.
fn stop(child: &mut Child) -> std::io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // Its workers would hold the device and the terminal's streams; none of them may be left.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    child.kill()
}

/// A directory for one more run of the case.
fn fresh(case: &Case) -> Result<PathBuf> {
    let runs = case.path.parent().unwrap_or(Path::new("")).join(RUNS);
    let name: String =
        case.name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    (1..=MOST)
        .map(|number| runs.join(format!("{name}-{number}")))
        .find(|path| std::fs::symlink_metadata(path).is_err())
        .ok_or_else(|| Error::at(&runs, format_args!("expected fewer than {MOST} runs of this case")))
}

/// `out`, which must not be there yet, or hold nothing.
fn free(out: &Path) -> Result<PathBuf> {
    let is_empty = || std::fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_none());
    if std::fs::symlink_metadata(out).is_ok() && !is_empty() {
        return Err(Error::at(
            out,
            "expected a directory that is not there yet, or is empty: a run is never written over",
        ));
    }
    Ok(out.to_path_buf())
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Why a program could not be started, in few words.
fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such program (it is looked for on the PATH)".into(),
        std::io::ErrorKind::PermissionDenied => "no permission to run it".into(),
        _ => error.to_string(),
    }
}

/// A command as one types it, without quotes.
struct Shown<'a>(&'a str, &'a [String]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)?;
        self.1.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}
