//! Putting a directory in the place of another so that a crash leaves the old one whole or the new
//! one whole.
//!
//! The new golden is made in a directory beside the old one, on the same file system, and then
//! exchanged with it in one step. Where the system has no such step, the old one is first renamed to
//! `.NAME.old`; whoever finds that without `NAME` puts it back ([`recover`]). The directory of a
//! recorder that died is told from that of a living one by the lock that the living one holds.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::Golden;
use super::document::GOLDEN_FILE;
use crate::error::{Error, Result};
use crate::run::format::sync_directory;

/// A directory that is (or will be) a golden, and its siblings.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The golden, without a link as its last part.
    pub(super) path: PathBuf,
    parent: PathBuf,
    name: OsString,
}

impl Place {
    /// The place of the golden at `path`, which need not be there. A link to a golden stays a link:
    /// what it leads to is replaced.
    pub(super) fn of(path: &Path) -> Result<Self> {
        let is_link = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        let path = if is_link {
            path.canonicalize().map_err(|e| Error::io(path, "follow the link", &e))?
        } else {
            path.to_path_buf()
        };
        let Some(name) = path.file_name() else {
            return Err(Error::at(&path, "expected the path of a directory that has a name of its own"));
        };
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        Ok(Self { name: name.to_os_string(), parent, path })
    }

    /// Where the old golden lies between the two renames.
    fn old(&self) -> PathBuf {
        self.parent.join(sibling(&self.name, ".old"))
    }

    /// Begins a new golden beside the old one, after clearing away what dead recorders left.
    pub(super) fn stage(&self) -> Result<Staging> {
        let parent = &self.parent;
        std::fs::create_dir_all(parent).map_err(|e| Error::io(parent, "make the directory", &e))?;
        // Held until the new directory is locked, lest another recorder takes it for a dead one's.
        let _guard = lock(parent);
        self.clear_dead();
        let dir = tempfile::Builder::new()
            .prefix(&self.staging_prefix())
            .tempdir_in(parent)
            .map_err(|e| Error::io(parent, "make a directory in it", &e))?;
        let lock = lock(dir.path());
        Ok(Staging { place: self.clone(), dir, lock })
    }

    fn staging_prefix(&self) -> OsString {
        sibling(&self.name, ".record-")
    }

    /// Removes directories that recorders of this golden left when they died. What cannot be removed
    /// stays: it is in nobody's way.
    fn clear_dead(&self) {
        let prefix = self.staging_prefix();
        let is_staging = |name: &OsStr| {
            let rest = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes());
            rest.is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_alphanumeric))
        };
        let Ok(entries) = std::fs::read_dir(&self.parent) else { return };
        for entry in entries.flatten() {
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if !is_dir || !is_staging(&entry.file_name()) {
                continue;
            }
            // Where locks are not known, nothing tells the dead from the living.
            if File::open(entry.path()).is_ok_and(|dir| dir.try_lock().is_ok()) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        let old = self.old();
        if holds_golden(&self.path) && is_leftover(&old) {
            let _ = std::fs::remove_dir_all(old);
        }
    }
}

/// `.NAME` and `suffix`.
fn sibling(name: &OsStr, suffix: &str) -> OsString {
    let mut out = OsString::from(".");
    out.push(name);
    out.push(suffix);
    out
}

fn is_leftover(old: &Path) -> bool {
    std::fs::symlink_metadata(old).is_ok_and(|found| found.is_dir()) && holds_golden(old)
}

/// Whether a golden is there, or a tree of them.
fn holds_golden(path: &Path) -> bool {
    path.join(GOLDEN_FILE).is_file() || (path.is_dir() && Golden::is_tree(path).unwrap_or(false))
}

/// Locks a directory against other recorders until the file is dropped. `None` where the file system
/// knows no locks: then two recorders of one golden at the same time are the user's to avoid.
fn lock(dir: &Path) -> Option<File> {
    let file = File::open(dir).ok()?;
    file.lock().ok()?;
    Some(file)
}

/// Puts an old golden back that a recorder which died between two renames had moved aside. True
/// where that was needed.
///
/// # Errors
/// The directory may not be changed.
pub fn recover(path: impl AsRef<Path>) -> Result<bool> {
    let Ok(place) = Place::of(path.as_ref()) else { return Ok(false) };
    let old = place.old();
    if !is_leftover(&old) {
        return Ok(false);
    }
    let _guard = lock(&place.parent);
    let gone = std::fs::symlink_metadata(&place.path).is_err_and(|e| e.kind() == ErrorKind::NotFound);
    if !gone || !is_leftover(&old) {
        return Ok(false);
    }
    std::fs::rename(&old, &place.path)
        .map_err(|e| Error::io(&place.path, &format!("put the golden back from `{}`", old.display()), &e))?;
    sync_directory(&place.parent)?;
    Ok(true)
}

/// A new golden in the making; dropped without [`Staging::put`] or [`Staging::replace`] it leaves nothing.
pub(super) struct Staging {
    place: Place,
    dir: tempfile::TempDir,
    /// Tells other recorders that this one lives.
    lock: Option<File>,
}

impl Staging {
    /// Where to make the new golden. Not there yet.
    pub(super) fn new_golden(&self) -> PathBuf {
        self.dir.path().join("new")
    }

    /// Writes a file of the new golden down to the disk.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let dir = self.new_golden();
        let path = dir.join(name);
        let write = || {
            let mut file = File::create_new(&path)?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        write().map_err(|e| Error::io(&path, "write", &e))?;
        sync_directory(&dir)
    }

    /// Puts the new golden where nothing (or an empty directory) is.
    ///
    /// # Errors
    /// Another recorder was faster.
    pub(super) fn put(self) -> Result<()> {
        let Self { place, dir, lock: alive } = self;
        {
            let _guard = lock(&place.parent);
            std::fs::rename(dir.path().join("new"), &place.path).map_err(|e| match e.kind() {
                ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
                    Error::at(&place.path, "expected nothing where the golden belongs, something appeared meanwhile")
                }
                _ => Error::io(&place.path, "put the new golden in place", &e),
            })?;
            sync_directory(&place.parent)?;
        }
        drop((dir, alive));
        Ok(())
    }

    /// Puts the new golden in the place of the old one and removes the old one. What of the old one
    /// could not be removed is the returned path.
    pub(super) fn replace(self) -> Result<Option<PathBuf>> {
        self.replace_by(exchange)
    }

    fn replace_by(self, exchange: impl Fn(&Path, &Path) -> std::io::Result<bool>) -> Result<Option<PathBuf>> {
        let Self { place, dir, lock: alive } = self;
        let new = dir.path().join("new");
        let cannot = |e: std::io::Error| Error::io(&place.path, "put the new golden in place", &e);
        {
            let _guard = lock(&place.parent);
            let replaces = match std::fs::symlink_metadata(&place.path) {
                Ok(_) => true,
                Err(e) if e.kind() == ErrorKind::NotFound => false,
                Err(e) => return Err(cannot(e)),
            };
            if !replaces {
                std::fs::rename(&new, &place.path).map_err(cannot)?;
            } else if !exchange(&new, &place.path).map_err(cannot)? {
                let old = place.old();
                std::fs::rename(&place.path, &old).map_err(cannot)?;
                sync_directory(&place.parent)?;
                if let Err(error) = std::fs::rename(&new, &place.path) {
                    let _ = std::fs::rename(&old, &place.path);
                    return Err(cannot(error));
                }
                sync_directory(&place.parent)?;
                // Into the directory that is removed now: half removed, it must not be put back.
                let _ = std::fs::rename(&old, &new);
            }
            sync_directory(&place.parent)?;
        }
        let left = dir.path().to_path_buf();
        let removed = dir.close();
        drop(alive);
        Ok(removed.is_err().then_some(left))
    }
}

/// Exchanges two directories in one step; false where the system or the file system has none.
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn exchange(a: &Path, b: &Path) -> std::io::Result<bool> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(Errno::NOSYS | Errno::INVAL | Errno::NOTSUP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn exchange(_: &Path, _: &Path) -> std::io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with a golden named `g` whose golden.json says `old`.
    fn with_old() -> (tempfile::TempDir, Place) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("g");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join(GOLDEN_FILE), "old").unwrap();
        (dir, Place::of(&path).unwrap())
    }

    fn staged(place: &Place) -> Staging {
        let staging = place.stage().unwrap();
        std::fs::create_dir(staging.new_golden()).unwrap();
        staging.write(GOLDEN_FILE, b"new").unwrap();
        staging
    }

    fn content(place: &Place) -> String {
        std::fs::read_to_string(place.path.join(GOLDEN_FILE)).unwrap()
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn both_ways_of_replacing_leave_the_new_golden_alone() {
        for exchange in [exchange as fn(&Path, &Path) -> std::io::Result<bool>, |_, _| Ok(false)] {
            let (dir, place) = with_old();
            assert_eq!(staged(&place).replace_by(exchange).unwrap(), None);
            assert_eq!((content(&place), names(dir.path())), ("new".into(), vec!["g".to_string()]));
        }
    }

    #[test]
    fn a_failing_exchange_leaves_the_old_golden_alone() {
        let (dir, place) = with_old();
        let error = staged(&place).replace_by(|_, _| Err(ErrorKind::PermissionDenied.into())).unwrap_err();
        assert!(error.message().contains("put the new golden in place: permission denied"), "{error}");
        assert_eq!((content(&place), names(dir.path())), ("old".into(), vec!["g".to_string()]));
    }

    #[test]
    fn a_second_rename_that_fails_is_undone() {
        let (dir, place) = with_old();
        let staging = place.stage().unwrap();
        // Nothing was made, so that there is nothing to rename.
        assert!(staging.replace_by(|_, _| Ok(false)).is_err());
        assert_eq!((content(&place), names(dir.path())), ("old".into(), vec!["g".to_string()]));
    }

    #[test]
    fn an_interrupted_swap_is_recovered_once() {
        let (dir, place) = with_old();
        std::fs::rename(&place.path, place.old()).unwrap();
        assert!(recover(&place.path).unwrap());
        assert_eq!((content(&place), names(dir.path())), ("old".into(), vec!["g".to_string()]));
        assert!(!recover(&place.path).unwrap());
    }

    #[test]
    fn a_tree_of_goldens_is_recovered_and_cleared_away_alike() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::of(&dir.path().join("g")).unwrap();
        let tree = |root: &Path| {
            std::fs::create_dir_all(root.join("step0/rank1")).unwrap();
            std::fs::write(root.join("step0/rank1").join(GOLDEN_FILE), "old").unwrap();
        };
        tree(&place.old());
        assert!(recover(&place.path).unwrap());
        assert!(place.path.join("step0/rank1").is_dir() && !place.old().exists());
        tree(&place.old());
        drop(place.stage().unwrap());
        assert_eq!(names(dir.path()), ["g"]);
        // A directory that holds something else is nobody's old golden.
        std::fs::create_dir_all(place.old().join("step0")).unwrap();
        std::fs::remove_dir_all(&place.path).unwrap();
        assert!(!recover(&place.path).unwrap());
    }

    #[test]
    fn after_the_second_rename_the_old_golden_is_cleared_away() {
        let (dir, place) = with_old();
        std::fs::rename(&place.path, place.old()).unwrap();
        std::fs::create_dir(&place.path).unwrap();
        std::fs::write(place.path.join(GOLDEN_FILE), "new").unwrap();
        assert!(!recover(&place.path).unwrap());
        drop(place.stage().unwrap());
        assert_eq!((content(&place), names(dir.path())), ("new".into(), vec!["g".to_string()]));
    }

    #[cfg(unix)]
    #[test]
    fn dead_recorders_are_cleared_away_and_living_ones_kept() {
        let (dir, place) = with_old();
        let living = place.stage().unwrap();
        std::fs::create_dir_all(dir.path().join(".g.record-dead01/new")).unwrap();
        // Those of a golden named `g.record-x`, and a directory that only looks alike.
        std::fs::create_dir(dir.path().join(".g.record-x.record-abcdef")).unwrap();
        std::fs::create_dir(dir.path().join(".g.record-")).unwrap();
        let second = place.stage().unwrap();
        let own = |staging: &Staging| staging.dir.path().file_name().unwrap().to_string_lossy().into_owned();
        let mut expected = vec![".g.record-".to_string(), ".g.record-x.record-abcdef".to_string(), "g".to_string()];
        expected.extend([own(&living), own(&second)]);
        expected.sort();
        assert_eq!(names(dir.path()), expected);
    }

    #[cfg(unix)]
    #[test]
    fn behind_a_link_the_target_is_replaced() {
        let (dir, place) = with_old();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&place.path, &link).unwrap();
        staged(&Place::of(&link).unwrap()).replace().unwrap();
        assert_eq!((content(&place), link.is_symlink()), ("new".into(), true));
    }

    #[test]
    fn a_path_without_a_name_is_refused() {
        for path in ["/", "..", "a/.."] {
            assert!(Place::of(Path::new(path)).unwrap_err().message().contains("a name of its own"), "{path}");
        }
    }
}
