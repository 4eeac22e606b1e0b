//! The commented case that `goldline init` writes.

/// A complete case file for the case `name`: what is required is set, everything else stands
/// commented out with its explanation. A line that starts with `#` and no blank is a setting.
pub fn template(name: &str) -> String {
    let quoted = yaml_text(name);
    let directory = yaml_text(&format!("goldens/{}", directory_name(name)));
    format!(
        r#"# A case: what is tested, against which golden, how strictly.
# Paths are relative to this file. Lines that start with `#` and no blank are settings to enable.
schema: goldline.case/1

# Short name that reports print.
name: {quoted}

# Seed that the runs are made with; a run with another seed is reported.
#seed: 1234

# Inputs of the model. Without it, the inputs recorded in the golden are what counts.
#inputs: inputs.safetensors

# The approved run. `goldline record` makes it, nothing else changes it.
golden: {directory}

# The run that `goldline verify` takes when --run is not given.
#candidate: runs/npu-fp16

# How to make a run: `record --execute` and `verify --execute` run it, without a shell, in this directory,
# with GOLDLINE_OUT (where to record), GOLDLINE_SEED, GOLDLINE_INPUTS and GOLDLINE_CASE set.
#command: [python, run.py]

# A known defect: `verify` succeeds when just this is found.
# verdict: pass, drift, nonfinite or incomparable; origin (optional): the layer it starts in.
#expect: {{verdict: nonfinite, origin: "ln.pow"}}

# The dtype that the candidate computes in: auto reads it from the run; else float16, bfloat16 …
precision: auto

# Which layers are judged, by name. `*` stands for any characters, dots included; `?` for one.
# A layer is judged if a pattern of `include` matches and none of `exclude` does.
#layers: {{include: ["**"], exclude: ["*.dropout"]}}

# Rewrites layer names before they are paired: regular expressions, applied in order. `to` may use
# $1. Common wrappers (module., _orig_mod. …) are known without a rule.
#rename: [{{from: '^model\.', to: ''}}]

# Positions that count: the mask's name among the recorded tensors. Others are compared, not judged.
#valid: {{mask: attention_mask}}

# Tensors of which each rank holds a part, so that a tree of 8 ranks compares with a run on one.
# how: concat (along dim), sum or replica; group: all, or the ranks; the last entry that matches wins.
#shards: [{{match: "*.up.weight", dim: 0}}, {{match: "*.down", how: sum}}]

# Limits. `auto` derives them from dtype, operator and reduction length; an explicit limit replaces
# it for its metric alone. The most specific entry wins: layer, op, dtype, default; of several layer
# patterns that match, the last.
# Largest allowed: max_abs, max_rel, mean_rel, rel_l2, max_ulp. Least allowed: cosine, sqnr (dB).
tolerance:
  default: auto
#  dtype: {{bfloat16: {{rel_l2: 3e-2}}}}
#  op:    {{softmax: {{max_abs: 1e-3}}}}
#  layer: {{"encoder.*.out": {{rel_l2: 5e-3, cosine: 0.9999}}}}
"#
    )
}

/// A double-quoted YAML scalar where plain text could be misread.
fn yaml_text(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'))
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n"
        );
    if plain { text.to_string() } else { serde_json::Value::from(text).to_string() }
}

/// The name as one component of a path.
fn directory_name(name: &str) -> String {
    let safe: String =
        name.chars().map(|c| if c.is_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' }).collect();
    if safe.trim_matches(['.', '-']).is_empty() { "golden".into() } else { safe }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;

    #[test]
    fn loads_as_written() {
        for name in ["minilm-encode", "no", "a: b # c", "\"", "1234", "é", ".."] {
            let text = template(name);
            let case = Case::parse(&text, "cases/new.yaml").unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(case.name, name);
            assert!(case.golden.starts_with("cases/goldens"), "{}", case.golden.display());
            assert!(case.tolerance.is_auto());
        }
    }

    #[test]
    fn every_key_is_there_and_every_setting_is_valid() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("runs/npu-fp16")).unwrap();
        std::fs::write(dir.path().join("inputs.safetensors"), "").unwrap();
        let text = template("all");
        let settings: Vec<&str> = text
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(setting) if !setting.starts_with(' ') || setting.starts_with("  ") => setting,
                _ => line,
            })
            .collect();
        let enabled = settings.join("\n");
        let case = Case::parse(&enabled, dir.path().join("case.yaml")).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(case.seed, Some(1234));
        assert!(case.inputs.is_some() && case.candidate.is_some() && case.command.is_some() && case.expect.is_some());
        assert!(case.valid.is_some() && !case.tolerance.is_auto() && !case.rename.is_empty());
        assert_eq!(case.shards.len(), 2);
        for key in crate::case::raw::keys::CASE {
            let stands = settings.iter().any(|line| line.starts_with(&format!("{key}:")));
            assert!(stands, "`{key}` is not in the template");
        }
    }
}
