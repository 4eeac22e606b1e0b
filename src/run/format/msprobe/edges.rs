//! Data flow by content: the same tensor where dtype, shape and digest are the same.
//!
//! msprobe gives tensors no ids. In go the reads and writes of the calls in execution order, out come ids such
//! that a read has the id of the last write of the same content. Content that is written again by a call that
//! did not read it (zeros, a recomputation) is another tensor from there on, so that no edge leads back.

use std::collections::{HashMap, HashSet};

use super::node::Recorded;
use super::payload::{Payload, Payloads};
use crate::run::{LayerKind, Stored};
use crate::tensor::{DType, Shape, element_count};

/// What makes two recorded tensors the same but for their shape.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Content {
    dtype: DType,
    elements: usize,
    digest: Digest,
    /// Bits of the extremes, which hold apart what a digest of 32 bits may confuse.
    extremes: [Option<u64>; 2],
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Digest {
    /// Over the stored bytes.
    Crc32(u32),
    /// As recorded.
    Text(String),
    /// Mean and norm: what is known where nothing was stored.
    Statistics(u64, u64),
}

impl Content {
    /// The content of a recorded tensor; `None` where too little is known of it.
    pub(super) fn of(recorded: &Recorded, payload: Option<&Payload>) -> Option<Self> {
        let (dtype, shape) = kind(recorded, payload)?;
        let dense = |stored: &Stored| {
            stored.layout.as_ref().is_none_or(|l| l.strides.is_none() && !l.big_endian && l.negated == [false; 2])
        };
        let crc32 = payload.filter(|payload| dense(&payload.stored)).and_then(|payload| payload.crc32);
        let digest = match (crc32, &recorded.digest) {
            (Some(crc32), _) => Digest::Crc32(crc32),
            (None, Some(text)) => Digest::Text(text.clone()),
            // Extremes alone, as of integers, are too little.
            (None, None) => match (recorded.mean, recorded.norm) {
                (Some(mean), Some(norm)) if norm != 0.0 => Digest::Statistics(mean.to_bits(), norm.to_bits()),
                _ => return None,
            },
        };
        let extremes = [recorded.max.map(f64::to_bits), recorded.min.map(f64::to_bits)];
        Some(Self { dtype, elements: element_count(shape)?, digest, extremes })
    }

    /// All elements are one value: such a tensor is equal to others by chance.
    fn is_constant(&self) -> bool {
        self.elements < 2 || self.extremes[0].is_some() && self.extremes[0] == self.extremes[1]
    }
}

/// Dtype and shape: as stored, else as recorded.
pub(super) fn kind<'a>(recorded: &'a Recorded, payload: Option<&'a Payload>) -> Option<(DType, &'a Shape)> {
    match payload {
        Some(payload) => Some((payload.stored.dtype, &payload.stored.shape)),
        None => Some((recorded.dtype?, recorded.shape.as_ref()?)),
    }
}

/// Who wrote a tensor last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writer {
    Nobody,
    Module,
    Operator,
}

#[derive(Debug, Clone)]
struct Version {
    id: String,
    writer: Writer,
}

/// A tensor of the run, named for the first time.
#[derive(Debug)]
pub(super) struct Named<'a> {
    pub(super) id: String,
    pub(super) recorded: &'a Recorded,
}

/// What a call reads.
#[derive(Debug, PartialEq)]
pub(super) struct Read {
    pub(super) id: String,
    /// The tensor of which it is a view that no call recorded: the same elements in another shape.
    pub(super) view_of: Option<String>,
    /// Nobody wrote or read it before.
    pub(super) is_new: bool,
}

/// The tensors seen so far.
pub(super) struct Edges<'a> {
    payloads: &'a Payloads,
    versions: HashMap<(Content, Shape), Version>,
    /// Shape in which a content was written last.
    written: HashMap<Content, Shape>,
    ids: HashSet<String>,
    pub(super) named: Vec<Named<'a>>,
}

impl<'a> Edges<'a> {
    pub(super) fn new(payloads: &'a Payloads) -> Self {
        Self { payloads, versions: HashMap::new(), written: HashMap::new(), ids: HashSet::new(), named: Vec::new() }
    }

    fn payload(&self, recorded: &Recorded) -> Option<&'a Payload> {
        self.payloads.get(recorded.data_name.as_deref()?)
    }

    /// The content and shape of a tensor, where it can be told from others.
    fn content(&self, recorded: &Recorded) -> Option<(Content, Shape)> {
        let payload = self.payload(recorded);
        let (_, shape) = kind(recorded, payload)?;
        Some((Content::of(recorded, payload)?, shape.clone()))
    }

    /// A new id that begins with `place`.
    fn name(&mut self, place: &str, recorded: &'a Recorded) -> String {
        let mut id = place.to_string();
        let mut again = 1u64;
        while !self.ids.insert(id.clone()) {
            id = format!("{place}#{again}");
            again += 1;
        }
        self.named.push(Named { id: id.clone(), recorded });
        id
    }

    /// A call reads the tensor that was recorded at `place`.
    pub(super) fn read(&mut self, place: &str, recorded: &'a Recorded) -> Read {
        let Some(key) = self.content(recorded) else {
            return Read { id: self.name(place, recorded), view_of: None, is_new: true };
        };
        if let Some(version) = self.versions.get(&key) {
            return Read { id: version.id.clone(), view_of: None, is_new: false };
        }
        let other = self.written.get(&key.0).filter(|_| !key.0.is_constant());
        let view_of = other.and_then(|shape| self.versions.get(&(key.0.clone(), shape.clone()))).map(|v| v.id.clone());
        let id = self.name(place, recorded);
        let writer = if view_of.is_some() { Writer::Operator } else { Writer::Nobody };
        self.versions.insert(key, Version { id: id.clone(), writer });
        Read { id, view_of, is_new: true }
    }

    /// The id of a tensor that was written or read already.
    pub(super) fn known(&self, recorded: &Recorded) -> Option<String> {
        self.versions.get(&self.content(recorded)?).map(|version| version.id.clone())
    }

    /// A call of `kind` that read `reads` writes the tensor that was recorded at `place`.
    pub(super) fn write(&mut self, place: &str, recorded: &'a Recorded, kind: LayerKind, reads: &[String]) -> String {
        let Some(key) = self.content(recorded) else { return self.name(place, recorded) };
        let writer = if kind == LayerKind::Module { Writer::Module } else { Writer::Operator };
        self.written.insert(key.0.clone(), key.1.clone());
        if let Some(version) = self.versions.get_mut(&key) {
            // A module hands on what is made inside it, though its entry may stand before or after; a call
            // that read the content handed it on.
            let same = kind == LayerKind::Module || version.writer == Writer::Module || reads.contains(&version.id);
            if same {
                if version.writer != Writer::Operator {
                    version.writer = writer;
                }
                return version.id.clone();
            }
        }
        let id = self.name(place, recorded);
        self.versions.insert(key, Version { id: id.clone(), writer });
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[usize], norm: f64) -> Recorded {
        let (max, min) = (Some(norm), Some(-norm));
        Recorded {
            dtype: Some(DType::F32),
            shape: Some(shape.to_vec()),
            max,
            min,
            mean: Some(0.0),
            norm: Some(norm),
            ..Recorded::default()
        }
    }

    #[test]
    fn a_read_has_the_id_of_the_last_write_of_its_content() {
        let payloads = Payloads::default();
        let (a, b) = (tensor(&[2, 3], 1.0), tensor(&[2, 3], 2.0));
        let mut edges = Edges::new(&payloads);
        assert_eq!(edges.read("f.in", &a), Read { id: "f.in".into(), view_of: None, is_new: true });
        assert_eq!(edges.write("f.out", &b, LayerKind::Operator, &["f.in".into()]), "f.out");
        assert_eq!(edges.write("M.out", &b, LayerKind::Module, &["f.in".into()]), "f.out");
        assert_eq!(edges.read("g.in", &b).id, "f.out");
        assert_eq!(edges.write("g.out", &b, LayerKind::Operator, &["f.out".into()]), "f.out", "handed on");
        assert_eq!(edges.write("h.out", &b, LayerKind::Operator, &["f.in".into()]), "h.out", "made again");
        assert_eq!(edges.read("i.in", &b).id, "h.out");
        assert_eq!(edges.named.len(), 3);
    }

    #[test]
    fn other_shapes_of_a_content_are_views_of_it() {
        let payloads = Payloads::default();
        let (flat, wide) = (tensor(&[6], 1.0), tensor(&[2, 3], 1.0));
        let mut edges = Edges::new(&payloads);
        edges.write("f.out", &flat, LayerKind::Operator, &[]);
        assert_eq!(edges.read("g.in", &wide), Read { id: "g.in".into(), view_of: Some("f.out".into()), is_new: true });
        assert_eq!(edges.read("h.in", &wide), Read { id: "g.in".into(), view_of: None, is_new: false });
        let constant = |shape: &[usize]| Recorded { min: Some(1.0), ..tensor(shape, 1.0) };
        let (ones, more) = (constant(&[4]), constant(&[2, 2]));
        edges.write("ones", &ones, LayerKind::Operator, &[]);
        assert_eq!(edges.read("i.in", &more).view_of, None, "ones are equal by chance");
    }

    #[test]
    fn what_cannot_be_told_from_others_stays_apart_and_ids_stay_unique() {
        let payloads = Payloads::default();
        let unknown = Recorded { norm: None, ..tensor(&[2], 1.0) };
        let mut edges = Edges::new(&payloads);
        assert_eq!(edges.write("x", &unknown, LayerKind::Operator, &[]), "x");
        assert_eq!(edges.read("x", &unknown).id, "x#1");
        assert_eq!(edges.read("x", &unknown).id, "x#2");
    }
}
