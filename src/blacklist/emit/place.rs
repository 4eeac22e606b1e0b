//! Where in the model the layers of an entry stand: the module to wrap, or the forward that holds
//! an operator without a module of its own.

use std::collections::{BTreeSet, HashMap};

use crate::blacklist::Entry;
use crate::op::Class;
use crate::pairing::{without_call, without_wrappers};
use crate::run::{Layer, LayerId, LayerKind, Run};

/// Where one layer stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The layer's name as reports print it.
    pub(super) layer: String,
    /// Path of the enclosing module, without wrappers; `None` where the name tells none.
    pub(super) module: Option<String>,
    /// Whether that module holds other modules, so that wrapping it takes more than this operator.
    pub(super) is_container: bool,
    /// Source line, where recorded.
    pub(super) source: Option<String>,
}

/// The modules of a run, as far as its layers tell them.
pub(super) struct Modules<'r> {
    run: &'r Run,
    by_name: HashMap<String, LayerId>,
    paths: BTreeSet<String>,
}

impl<'r> Modules<'r> {
    pub(super) fn of(run: &'r Run) -> Self {
        let by_name = run.layers.iter().map(|layer| (run.display_name(layer.id), layer.id)).collect();
        let mut paths = BTreeSet::new();
        for layer in &run.layers {
            let name = path(&layer.name);
            if layer.kind == LayerKind::Module {
                paths.insert(name.clone());
            }
            paths.extend(parent(&name).map(str::to_string));
            paths.extend(recorded_module(layer));
        }
        Self { run, by_name, paths }
    }

    /// Where the layers of `entry` stand, in its order.
    pub(super) fn places(&self, entry: &Entry) -> Vec<Place> {
        entry.layers.iter().map(|name| self.place(name)).collect()
    }

    fn place(&self, name: &str) -> Place {
        let layer = self.by_name.get(name).map(|&id| self.run.layer(id));
        let own = path(layer.map_or(name, |layer| &layer.name));
        // A layer with parameters below its own name is that module's forward, recorded as an operator.
        let module = if self.paths.contains(&own) || layer.is_some_and(|layer| is_module(layer, &own)) {
            Some(own)
        } else {
            layer.and_then(recorded_module).or_else(|| parent(&own).map(str::to_string))
        };
        let is_container = module.as_deref().is_some_and(|module| self.holds_modules(module));
        Place {
            layer: name.to_string(),
            module,
            is_container,
            source: layer.and_then(|layer| layer.source.clone()).filter(|source| !source.is_empty()),
        }
    }

    fn holds_modules(&self, module: &str) -> bool {
        let below = format!("{module}.");
        self.paths.range(below.clone()..).next().is_some_and(|path| path.starts_with(&below))
    }
}

/// Whether a layer's own name is a module's: it was recorded as one, or frameworks have a module for
/// its operator and its name does not end in the operator's, as names of bare operators do.
fn is_module(layer: &Layer, own: &str) -> bool {
    let has_module = layer.op.class() == Class::Norm || matches!(layer.op.name(), "linear" | "conv" | "conv_transpose");
    let last = own.rsplit_once('.').map_or(own, |(_, last)| last);
    let bare = layer.op_name.rsplit([':', '.']).next().unwrap_or_default();
    layer.kind == LayerKind::Module || has_module && last != bare
}

fn path(name: &str) -> String {
    without_wrappers(without_call(name))
}

/// The module path of a name: all of it but its last component.
fn parent(name: &str) -> Option<&str> {
    name.rsplit_once('.').map(|(module, _)| module).filter(|module| !module.is_empty())
}

fn recorded_module(layer: &Layer) -> Option<String> {
    layer.module.as_deref().filter(|module| !module.is_empty()).map(without_wrappers)
}
