//! Tensors that `torch.save` wrote: `.pt` and `.pth`, as a zip archive or in the form before torch 1.6.
//!
//! In goes a file, out come its tensors in the order of the containers that hold them, each with its path
//! through these containers as its name. A restricted unpickler reads what the file says of them; the
//! invariant is that nothing of it is executed: `pickle` turns opcodes into plain values, `globals` lists
//! the few names that these may use and refuses all else, `rebuild` reads a call of one of torch's
//! functions as the view that it would have made, `listing` walks the containers, and `place` holds each
//! view against the storage it looks into. Time and memory stay bounded by the length of the pickle.

mod archive;
mod globals;
mod legacy;
mod listing;
mod opcode;
mod pickle;
mod place;
mod rebuild;
mod value;

pub(super) use archive::{is_archive, tensors as archived};
pub(super) use legacy::{is_legacy, tensors as legacy};

/// What is wrong with a pickle, and at which of its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    byte: usize,
    text: String,
    /// Whether the pickle ends too early, so that more of the file may help.
    short: bool,
}

impl Fault {
    fn at(byte: usize, text: impl Into<String>) -> Self {
        Self { byte, text: text.into(), short: false }
    }
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod mutation;
#[cfg(test)]
mod tests;
