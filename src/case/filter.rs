//! Which layers a case judges.

use globset::{GlobBuilder, GlobMatcher};

/// Compiles a pattern for layer names. `*` stands for any characters, dots included (so does `**`),
/// `?` for one; `[…]` and `{a,b}` are as in a shell.
pub(super) fn layer_glob(pattern: &str) -> Result<GlobMatcher, globset::Error> {
    Ok(GlobBuilder::new(pattern).literal_separator(false).backslash_escape(true).build()?.compile_matcher())
}

/// `layers` of a case: a layer is judged if an include pattern matches its name and no exclude
/// pattern does. The default judges every layer.
#[derive(Debug, Clone, Default)]
pub struct LayerFilter {
    /// `None` includes everything.
    include: Option<Vec<GlobMatcher>>,
    exclude: Vec<(GlobMatcher, String)>,
}

impl LayerFilter {
    pub(super) fn new(include: Option<Vec<GlobMatcher>>, exclude: Vec<(GlobMatcher, String)>) -> Self {
        let exclude = exclude
            .into_iter()
            .map(|(glob, pattern)| (glob, format!("excluded by layers.exclude '{pattern}'")))
            .collect();
        Self { include, exclude }
    }

    /// Why the layer named `layer_name` (as recorded in the golden, or in the candidate where only
    /// that has it) is left out; `None` where it is judged.
    pub fn decides(&self, layer_name: &str) -> Option<&str> {
        if let Some((_, reason)) = self.exclude.iter().find(|(glob, _)| glob.is_match(layer_name)) {
            return Some(reason);
        }
        let included = self.include.as_ref().is_none_or(|globs| globs.iter().any(|glob| glob.is_match(layer_name)));
        (!included).then_some("not matched by layers.include")
    }
}
