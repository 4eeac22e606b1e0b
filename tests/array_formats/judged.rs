//! Bare tensors are judged by dtype: rounding passes, drift is found, the coarser dtype decides.

use super::write::{Member, Place, goldline, npy, npy_f16, npz};

/// Values of a network's scale, the same in each test.
fn values(seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..4096).map(|_| next() + next() + next()).collect()
}

/// The same with relative errors of this size, of either sign.
fn off_by(values: &[f32], relative: f64) -> Vec<f32> {
    let sign = |at: usize| if at.is_multiple_of(3) { -1.0 } else { 1.0 };
    values.iter().enumerate().map(|(at, v)| (f64::from(*v) * (1.0 + sign(at) * relative)) as f32).collect()
}

#[track_caller]
fn verdict(golden: Vec<u8>, candidate: Vec<u8>) -> (i32, String) {
    let place = Place::new();
    place.write("a.npy", golden);
    place.write("b.npy", candidate);
    let (status, out, error) = goldline(place.path("a.npy").parent().unwrap(), &["diff", "a.npy", "b.npy"]);
    assert!(error.is_empty(), "{error}");
    (status, out)
}

#[test]
fn rounding_of_a_whole_network_passes() {
    let x = values(1);
    for error in [0.0, 1e-7, 1e-6, 5e-6] {
        assert_eq!(verdict(npy(&x), npy(&off_by(&x, error))).0, 0, "{error}");
    }
    assert_eq!(verdict(npy(&x), npy_f16(&x)).0, 0);
    assert_eq!(verdict(npy_f16(&x), npy(&x)).0, 0);
    assert_eq!(verdict(npy(&x), npy_f16(&off_by(&x, 1e-3))).0, 0);
    assert_eq!(verdict(npy_f16(&x), npy_f16(&off_by(&x, 2e-3))).0, 0);
}

#[test]
fn drift_is_found_and_the_reason_says_what_is_not_known() {
    let x = values(2);
    for (golden, candidate) in [
        (npy(&x), npy(&off_by(&x, 5e-5))),
        (npy(&x), npy(&off_by(&x, 1e-2))),
        (npy(&x), npy_f16(&off_by(&x, 1e-2))),
        (npy_f16(&x), npy_f16(&off_by(&x, 1e-2))),
    ] {
        let (status, out) = verdict(golden, candidate);
        assert_eq!(status, 1);
        let out = out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(out.contains("assumed since no operator was recorded"), "{out}");
        assert!(out.contains("what it was computed from is not recorded"), "{out}");
    }
    let mut one_wrong = x.clone();
    one_wrong[77] += 0.05;
    assert_eq!(verdict(npy(&x), npy(&one_wrong)).0, 1);
    let mut not_a_number = x.clone();
    not_a_number[77] = f32::NAN;
    assert_eq!(verdict(npy(&x), npy(&not_a_number)).0, 1);
}

#[test]
fn the_first_in_the_archive_is_named_and_others_are_not_blamed() {
    let place = Place::new();
    let archive = |error: f64| {
        let x = |seed, error| npy(&off_by(&values(seed), error));
        let members = [("z.npy", x(1, 0.0)), ("m.npy", x(2, error)), ("a.npy", x(3, error))];
        npz(&members.map(|(name, content)| Member::deflated(name, &content)))
    };
    place.write("a.npz", archive(0.0));
    place.write("b.npz", archive(1e-3));
    let (status, out, _) = goldline(place.path("a.npz").parent().unwrap(), &["diff", "a.npz", "b.npz", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(status, 1);
    assert_eq!(report["first_drift"]["layer"], "m");
    let origins: Vec<&str> =
        report["origins"].as_array().unwrap().iter().map(|o| o["layer"].as_str().unwrap()).collect();
    assert_eq!(origins, ["m"]);
    let verdicts: Vec<&str> =
        report["layers"].as_array().unwrap().iter().map(|l| l["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["pass", "drift", "drift"]);
}

#[test]
fn other_names_and_shapes_are_told_apart() {
    let place = Place::new();
    let x = values(4);
    place.write("a.npz", npz(&[Member::stored("x.npy", &npy(&x)), Member::stored("y.npy", &npy(&x[..7]))]));
    place.write("b.npz", npz(&[Member::stored("x.npy", &npy(&x)), Member::stored("z.npy", &npy(&x[..8]))]));
    place.write("c.npz", npz(&[Member::stored("x.npy", &npy(&x)), Member::stored("y.npy", &npy(&x[..8]))]));
    let directory = place.path("a.npz").parent().unwrap().to_path_buf();
    let (status, out, _) = goldline(&directory, &["diff", "a.npz", "c.npz"]);
    assert_eq!(status, 1, "{out}");
    assert!(out.contains("mismatch"), "{out}");
    let (status, out, _) = goldline(&directory, &["diff", "a.npz", "b.npz", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((status, report["verdict"].as_str()), (3, Some("incomparable")), "{out}");
}
