//! Where the bytes of a view lie: the view, held against the storage it looks into.
//!
//! In goes what the pickle says and where the storage lies in the file, out comes where the tensor is
//! loaded from. Nothing of a view lies outside its storage, and none becomes much larger by repeating it.

use super::Fault;
use super::listing::Listed;
use super::rebuild::View;
use crate::run::format::container::Found;
use crate::run::stored::MAX_REPEATED;
use crate::run::{Encoding, Layout, Stored};
use crate::tensor::element_count;

/// Where a storage lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Offset in the file of its first byte.
    pub(super) offset: u64,
    /// Bytes it takes in the file.
    pub(super) span: u64,
    /// Bytes once unpacked.
    pub(super) len: u64,
    pub(super) encoding: Encoding,
    pub(super) big_endian: bool,
    /// CRC-32 of its bytes, where the file has it.
    pub(super) crc32: Option<u32>,
}

/// A tensor whose storage lies at `place`, in the file number `file`.
///
/// # Errors
/// A storage that is shorter than the pickle says, a view that leaves its storage.
pub(super) fn found(listed: Listed<'_>, place: Place, file: usize) -> Result<Found, Fault> {
    let refused = |text: String| Fault::at(listed.view.byte, format!("{}: {text}", listed.title()));
    let measured = measure(&listed.view, place).map_err(refused)?;
    let Listed { name, view } = listed;
    let whole = measured.dense && measured.skip == 0 && measured.len == place.len;
    let stored = stored(view, measured, place, file);
    Ok(Found { name, stored, crc32: place.crc32.filter(|_| whole) })
}

/// Bytes of a view.
struct Measured {
    /// In its storage, before its first element.
    skip: u64,
    /// In its storage, from its first element to its last.
    reach: u64,
    /// Once it is dense.
    len: u64,
    /// Whether it is dense already.
    dense: bool,
}

fn measure(view: &View<'_>, place: Place) -> Result<Measured, String> {
    let storage = &view.storage;
    let claimed = storage.element.bytes().and_then(|size| storage.count.checked_mul(size));
    let available = match claimed {
        Some(claimed) if claimed <= place.len => claimed,
        _ => {
            let (count, key, len) = (storage.count, storage.key, place.len);
            return Err(format!("expected {count} elements in storage `{key}`, found {len} bytes"));
        }
    };
    let size = view.dtype.byte_len(1).map_or(1, |n| n as u64);
    let beyond = || format!("{:?} with strides {:?} is beyond memory", view.shape, view.strides);
    let len = element_count(&view.shape).and_then(|n| view.dtype.byte_len(n)).and_then(|n| u64::try_from(n).ok());
    let len = len.ok_or_else(beyond)?;
    if len == 0 {
        return Ok(Measured { skip: 0, reach: 0, len, dense: true });
    }
    let skip = view.offset.checked_mul(size);
    let reach = reach(view).and_then(|n| n.checked_mul(size));
    let (Some(skip), Some(reach)) = (skip, reach) else { return Err(beyond()) };
    if skip.checked_add(reach).is_none_or(|end| end > available) {
        let key = storage.key;
        return Err(format!(
            "expected {reach} bytes from byte {skip} of storage `{key}` on, which has {available} bytes"
        ));
    }
    if len > reach && len > MAX_REPEATED {
        return Err(format!("{reach} stored bytes are repeated to {len}, expected at most {MAX_REPEATED}"));
    }
    Ok(Measured { skip, reach, len, dense: is_dense(view) })
}

/// Elements from the first to the last, both included, of a view that is not empty.
fn reach(view: &View<'_>) -> Option<u64> {
    view.shape.iter().zip(&view.strides).try_fold(1u64, |last, (&extent, &stride)| {
        let steps = u64::try_from(extent).ok()?.checked_sub(1)?;
        last.checked_add(stride.checked_mul(steps)?)
    })
}

/// Whether a view is row-major and without gaps; the stride of an axis of extent 1 says nothing.
fn is_dense(view: &View<'_>) -> bool {
    let mut expected = 1u64;
    view.shape.iter().zip(&view.strides).rev().all(|(&extent, &stride)| {
        let fits = extent == 1 || stride == expected;
        expected = expected.saturating_mul(extent as u64);
        fits
    })
}

fn stored(view: View<'_>, measured: Measured, place: Place, file: usize) -> Stored {
    let Measured { skip, reach, len, dense } = measured;
    let plain = place.encoding == Encoding::Plain;
    let components = view.dtype.components();
    let [real, imaginary] = view.negated;
    let negated = [real, imaginary && components == 2];
    let swapped = place.big_endian && view.dtype.byte_len(1) != Some(1);
    // A compressed storage is unpacked from its start.
    let (offset, span, skip) = if plain { (place.offset + skip, reach, 0) } else { (place.offset, place.span, skip) };
    let simple = plain && dense && !swapped && negated == [false; 2];
    let layout = (!simple && len > 0).then(|| {
        let strides = (!dense).then_some(view.strides);
        Box::new(Layout { span, encoding: place.encoding, skip, strides, big_endian: swapped, negated })
    });
    Stored { dtype: view.dtype, shape: view.shape, file, offset, len, crc32: None, layout }
}
