//! Rules that rewrite layer names before they are paired.

use std::borrow::Cow;

use regex::Regex;

/// Longest name that a rule makes, in bytes, unless it had more before.
const MAX_RENAMED: usize = 1 << 16;

/// One entry of `rename`: what matches `from` becomes `to`.
#[derive(Debug, Clone)]
pub struct Rename {
    /// Where it applies.
    pub regex: Regex,
    /// What takes its place; `$1`, `${1}` and `${name}` are the groups of the match, `$$` is a dollar.
    pub to: String,
}

impl Rename {
    /// The name with every match replaced; borrowed where nothing matches, or where the result would
    /// be longer than any name: a few rules that double it would otherwise fill the memory.
    pub fn apply<'a>(&self, name: &'a str) -> Cow<'a, str> {
        let mut out = String::new();
        let mut from = 0;
        for captures in self.regex.captures_iter(name) {
            let Some(whole) = captures.get(0) else { continue };
            out.push_str(name.get(from..whole.start()).unwrap_or_default());
            captures.expand(&self.to, &mut out);
            if out.len() > MAX_RENAMED.max(name.len()) {
                return Cow::Borrowed(name);
            }
            from = whole.end();
        }
        if from == 0 && out.is_empty() && !self.regex.is_match(name) {
            return Cow::Borrowed(name);
        }
        out.push_str(name.get(from..).unwrap_or_default());
        Cow::Owned(out)
    }
}

/// The first group that `to` mentions and `regex` does not have. The regex crate would replace it by
/// nothing, and reads `$1_x` as the group named `1_x`: both are mistakes that nobody would notice.
pub(super) fn unknown_group<'a>(regex: &Regex, to: &'a str) -> Option<&'a str> {
    let mut rest = to;
    while let Some(at) = rest.find('$') {
        let tail = rest.get(at + 1..).unwrap_or_default();
        if let Some(after) = tail.strip_prefix('$') {
            rest = after;
            continue;
        }
        let (group, after) = match tail.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some(braced) => braced,
            None => {
                let end = tail.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(tail.len());
                tail.split_at(end)
            }
        };
        let known = match group.parse::<usize>() {
            Ok(number) => number < regex.captures_len(),
            Err(_) => group.is_empty() || regex.capture_names().flatten().any(|name| name == group),
        };
        if !known {
            return Some(group);
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(from: &str, to: &str) -> Rename {
        Rename { regex: Regex::new(from).unwrap(), to: to.into() }
    }

    #[test]
    fn a_prefix_goes() {
        let strip = rule(r"^module\.", "");
        assert_eq!(strip.apply("module.encoder.module.x"), "encoder.module.x");
        assert!(matches!(strip.apply("encoder"), Cow::Borrowed("encoder")));
    }

    #[test]
    fn groups_are_put_in_and_every_match_is_replaced() {
        assert_eq!(rule(r"layer(\d+)", "layers.$1").apply("layer3.a.layer12"), "layers.3.a.layers.12");
        assert_eq!(rule(r"(?<n>\d)$", "${n}_x").apply("a1"), "a1_x");
        assert_eq!(rule("a", "$$").apply("bab"), "b$b");
    }

    #[test]
    fn groups_that_are_not_there_are_found() {
        let regex = Regex::new(r"(a)(?<b>b)").unwrap();
        for good in ["", "$1$2", "$b", "${1}_x", "$$9", "$", "$.", "$0"] {
            assert_eq!(unknown_group(&regex, good), None, "{good}");
        }
        for (bad, group) in [("$3", "3"), ("x$1_x", "1_x"), ("${c}", "c"), ("$$$4", "4")] {
            assert_eq!(unknown_group(&regex, bad), Some(group), "{bad}");
        }
    }

    #[test]
    fn rules_that_double_a_name_end() {
        let double = rule(".", "$0$0");
        let mut name = "layer".to_string();
        for _ in 0..64 {
            name = double.apply(&name).into_owned();
        }
        assert!(name.len() <= MAX_RENAMED && name.len() > MAX_RENAMED / 2, "{}", name.len());
        let long = "x".repeat(MAX_RENAMED + 1);
        assert_eq!(rule("^x", "y").apply(&long).len(), long.len(), "a name that is longer already is still renamed");
        assert!(matches!(rule("z", "y").apply(&long), Cow::Borrowed(_)));
        assert_eq!(rule("^", "m.").apply("fc"), "m.fc");
        assert_eq!(rule("a*", "-").apply("baac"), "-b-c-");
    }
}
