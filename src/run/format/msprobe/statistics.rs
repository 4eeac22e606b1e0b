//! Recorded statistics: what msprobe measured of a tensor, as a run holds it.
//!
//! msprobe takes maximum, minimum, mean and norm over all elements, in the tensor's own dtype, so that a NaN
//! makes all of them NaN and a norm may overflow where no element does. In goes an entry, out come statistics
//! over the finite values, with what is known of the others.

use super::node::Recorded;
use crate::run::{RecordedStats, Stored};
use crate::tensor::{DType, Kind};

/// The statistics of a recorded tensor; `None` where nothing beyond its kind is known.
pub(super) fn of(recorded: &Recorded, stored: Option<&Stored>) -> Option<RecordedStats> {
    let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
    let extremes = [recorded.max, recorded.min];
    // A norm overflows where no element does, but is NaN only where one is.
    let nan = extremes.iter().chain([&recorded.norm]).flatten().any(|value| value.is_nan());
    let inf = extremes.iter().flatten().any(|value| value.is_infinite());
    let known = extremes.iter().all(Option::is_some);
    let real = recorded.dtype.is_none_or(|dtype| dtype.kind() != Kind::Complex);
    // Beside an infinity the mean and the norm say nothing about the rest.
    let clean = real && !nan && !inf;
    // A 0-d tensor's norm is recorded as the value itself.
    let norm = finite(recorded.norm).filter(|_| clean).map(f64::abs);
    let stats = RecordedStats {
        dtype: stored.map_or(recorded.dtype, |stored| Some(stored.dtype)),
        shape: stored.map_or_else(|| recorded.shape.clone(), |stored| Some(stored.shape.clone())),
        min: finite(recorded.min).filter(|_| real),
        max: finite(recorded.max).filter(|_| real),
        mean: finite(recorded.mean).filter(|_| clean),
        l2: norm,
        nan: known.then_some(u64::from(nan)),
        inf: (known && !nan).then_some(u64::from(inf)),
        specials_uncounted: nan || inf,
        digest: recorded.digest.as_deref().and_then(|text| digest(text, recorded.dtype)),
        ..RecordedStats::default()
    };
    (stats.shape.is_some() && (stats.dtype.is_some() || known || stats.digest.is_some())).then_some(stats)
}

/// `alg:hex`. What msprobe calls `md5` is a CRC-32 in all but its first versions.
fn digest(text: &str, dtype: Option<DType>) -> Option<String> {
    let hex = text.strip_prefix("0x").unwrap_or(text);
    if hex.is_empty() || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    // Early versions take the digest of a bfloat16 tensor after they made it float32.
    let of = if dtype == Some(DType::BF16) { "-bf16" } else { "" };
    match (hex.len(), text.starts_with("0x")) {
        (8, _) => Some(format!("crc32{of}:{}", hex.to_ascii_lowercase())),
        (16, true) => Some(format!("xor64:{}", hex.to_ascii_lowercase())),
        (32, _) => Some(format!("md5{of}:{}", hex.to_ascii_lowercase())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(max: f64, min: f64, norm: f64) -> Recorded {
        Recorded {
            dtype: Some(DType::F16),
            shape: Some(vec![2, 2]),
            max: Some(max),
            min: Some(min),
            mean: Some(0.5),
            norm: Some(norm),
            ..Recorded::default()
        }
    }

    #[test]
    fn infinities_and_nan_are_known_but_not_counted() {
        let clean = of(&recorded(2.0, -1.0, f64::INFINITY), None).unwrap();
        assert_eq!((clean.nan, clean.inf, clean.specials_uncounted), (Some(0), Some(0), false));
        assert_eq!((clean.max, clean.min, clean.mean, clean.l2), (Some(2.0), Some(-1.0), Some(0.5), None));
        let inf = of(&recorded(f64::INFINITY, -1.0, f64::INFINITY), None).unwrap();
        assert_eq!((inf.nan, inf.inf, inf.specials_uncounted), (Some(0), Some(1), true));
        assert_eq!((inf.max, inf.min, inf.mean, inf.l2), (None, Some(-1.0), None, None));
        let nan = of(&recorded(f64::NAN, f64::NAN, f64::NAN), None).unwrap();
        assert_eq!((nan.nan, nan.inf, nan.specials_uncounted), (Some(1), None, true));
        let scalar = Recorded { shape: Some(vec![]), ..recorded(-3.0, -3.0, -3.0) };
        assert_eq!(of(&scalar, None).unwrap().l2, Some(3.0));
        assert_eq!(of(&Recorded::default(), None), None);
    }

    #[test]
    fn digests_are_named_by_what_they_are() {
        for (text, expected) in [
            ("0A1B2C3D", Some("crc32:0a1b2c3d")),
            ("0x00000000000000ff", Some("xor64:00000000000000ff")),
            ("d41d8cd98f00b204e9800998ecf8427e", Some("md5:d41d8cd98f00b204e9800998ecf8427e")),
            ("", None),
            ("not a digest", None),
        ] {
            assert_eq!(digest(text, Some(DType::F32)).as_deref(), expected, "{text}");
        }
        assert_eq!(digest("0a1b2c3d", Some(DType::BF16)).as_deref(), Some("crc32-bf16:0a1b2c3d"));
    }
}
