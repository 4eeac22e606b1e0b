//! Every threshold of the judgement, once, with its reason and source.

use crate::compare::Tolerance;
use crate::tensor::DType;

/// Relative L2 error of one rounding, in units of the unit roundoff: the rms of a uniform rounding
/// error over a binade. Source: measured 0.42 on networks, at most 2.38 times that when one element
/// dominates.
pub const ROUNDING: f64 = 0.42;

/// How far the total error may exceed its budget. Healthy runs (reordered sums, ULP noise, fp16 and
/// bf16 AMP) reached 1.9 times the budget, the smallest plain fault 44 times; 4 leaves a factor of
/// two above every healthy run.
pub const TOTAL: f64 = 4.0;

/// How far the worst channel may exceed the budget. A channel is one of many and smaller than the
/// whole, so its error scatters more: healthy runs reached 3.0.
pub const CHANNEL: f64 = 12.0;

/// How far one element may exceed the budget. The largest of n normal errors is about
/// sqrt(2 ln n) = 5.3 of them at n = 10^6, and rows differ in scale: healthy runs reached 8.8.
pub const ELEMENT: f64 = 32.0;

/// Own error of a function that is computed in fp32 (norms, softmax, activations, exp, log …), in
/// ULP. Source: healthy fp32 softmax reached 8 and gelu's elements 16 half-ULP.
pub const FUNCTION_ULP: f64 = 8.0;

/// The same for arithmetic that the standard rounds correctly (add, mul …) and for roots: IEEE 754
/// leaves nothing to the device but whether a product is fused with what is added to it, and a
/// hardware root is refined to 1 ULP; noise of one ULP on every value must pass.
pub const ARITHMETIC_ULP: f64 = 2.0;

/// Standard errors by which the slope of 16-bit outputs over their exact values must miss 1. The
/// errors of roundings are independent of the value's sign and of each other, so that the slope of
/// thousands of elements is known far better than one of them: at 6 a healthy layer in 10^9 is out.
pub const SLOPE_SIGMAS: f64 = 6.0;

/// Smallest bias of the slope that counts, in unit roundoffs of the output: functions that are a few
/// ULP of fp32 off on one side make less (2^-21 against 2^-13 here for fp16).
pub const SLOPE_BIAS: f64 = 0.25;

/// Fewest rows over which the slope's standard error is formed: of fewer it is itself uncertain by
/// more than a fifth.
pub const SLOPE_ROWS: usize = 16;

/// Sums in fp32 unless the run says otherwise.
pub const DEFAULT_ACCUMULATOR: f64 = 5.960_464_477_539_063e-8;

/// Share of K that rounding of a sum of K zero-mean terms costs: y_i^2/3 + Q_i/6 of NUMERICS with
/// Q = y^2, in blocks of one.
pub const SUM_SHARE: f64 = 0.5;

/// Roundings that a tensor may have behind it of which nothing but its content was recorded, as in a bare
/// `.npy`. Errors grow with the square root, so that this is an allowance of 4, and a total limit of
/// rel_l2 1.4e-5 in fp32, 4.7e-3 in fp16, 3.8e-2 in bf16: whole healthy networks stay below it, and it is
/// within five times what users know (torch.testing: 1e-5 absolute in fp32, 1e-3 in fp16, 1.6e-2 in bf16;
/// Polygraphy: 1e-5).
pub const UNRECORDED_ROUNDINGS: u32 = 16;

/// Terms that each of these roundings may have summed: a hidden width of an ordinary model.
pub const UNRECORDED_LENGTH: f64 = 1024.0;

/// Largest growth of an error through a function of an absolute argument (softmax, exp, sin) that
/// counts as ordinary. Beyond it the step is ill-conditioned, which is reported, not excused:
/// logits of ordinary models stay below 16, RoPE angles at position 16 000 do not.
pub const ORDINARY_GROWTH: f64 = 16.0;

/// How much larger than what its inputs and its own rounding explain an error must be to be called
/// a jump. Healthy layers reached 1.5.
pub const JUMP: f64 = 3.0;

/// Two golden values tie within a dtype's tolerance if their distance is below this many unit
/// roundoffs of the larger one, on top of the budget of the values themselves.
pub const TIE: f64 = 4.0;

/// Weight of the half smallest subnormal that each element may be off by in absolute terms.
pub const SUBNORMAL_FLOOR: f64 = 0.5;

/// Largest difference in steps that a quantizer may show where its input agrees within tolerance.
pub const QUANTIZER_STEPS: f64 = 1.0;

/// Elementwise tolerance by which the share of elements beyond it is counted (shown, never judged).
/// Source: Huawei's operator precision standard: relative 2^-10 fp16, 2^-7 bf16, 2^-13 fp32, 2^-3
/// e4m3, 2^-2 e5m2; small values by an absolute error of 2^-16, 2^-16, 2^-30.
pub fn vendor_tolerance(dtype: DType) -> Tolerance {
    let (rel, abs) = match dtype {
        DType::F16 => (2f64.powi(-10), 2f64.powi(-16)),
        DType::BF16 => (2f64.powi(-7), 2f64.powi(-16)),
        DType::F8E4M3 | DType::F8E4M3Fnuz => (2f64.powi(-3), 2f64.powi(-9)),
        DType::F8E5M2 | DType::F8E5M2Fnuz => (2f64.powi(-2), 2f64.powi(-9)),
        DType::F32 | DType::F64 | DType::C64 => (2f64.powi(-13), 2f64.powi(-30)),
        _ => (0.0, 0.0),
    };
    Tolerance { abs, rel }
}

/// How far the error that a layer made itself may exceed its budget, as a whole. Source: correct
/// 16-bit operators stay at 0.9 to 1.15 times the model; 2.4 is what one dominating element does to
/// the relative L2 error of one rounding.
pub const INTRODUCED: f64 = 2.4;

/// How far one element may exceed its own bound (half a ULP of the result plus what the operator may
/// add). Source: healthy elements stay below about 2.5.
pub const INTRODUCED_ELEMENT: f64 = 2.5;

/// Widening of [`INTRODUCED`] for few elements: the relative spread of a mean over n squares is about
/// sqrt(2/n), taken three times.
pub const SUM_SPREAD: f64 = 4.2;

/// Standard deviations of a sum's rounding error that one element may be off.
pub const SUM_SIGMAS: f64 = 6.0;

/// Largest number of elements, inputs and outputs together, that a layer may have to be replayed as a
/// whole by default: 8 bytes each in f64, so that two layers at a time stay below 2 GB. Beyond it rows
/// are replayed.
pub const REPLAY_ELEMENTS: u64 = 100_000_000;

/// Largest number of products that one layer may cost by default: some seconds on one core.
pub const REPLAY_PRODUCTS: u64 = 40_000_000_000;

/// Rows that are replayed of a layer that is too large: those that differ most between the runs, and as
/// many again that follow from their number. An error in one row is among the former, one in a
/// share p of the rows is missed by the latter with probability (1 - p)^64: 0.1 % for a tenth.
pub const ROWS_DIFFERING: usize = 64;

/// See [`ROWS_DIFFERING`].
pub const ROWS_AT_RANDOM: usize = 64;

/// A golden whose own error is within this factor of the candidate's misses the same reference: the
/// operator is not what its record says, and replay decides nothing.
pub const BOTH_SIDES: f64 = 3.0;

/// How far a candidate may be off in multiples of the spread between approved runs of the golden, where
/// that is more than its error budget explains. The ratio of two such norms over n independent
/// deviations is the square root of F(n, n): above 3 in 0.1 % of the cases for n = 10, practically never
/// for n = 100. Noise only widens: runs of one device that agree to the bit say that it repeats itself,
/// nothing of how another correct summation order or rounding differs from it, so that a limit
/// tightened to them would fail every other device.
pub const NOISE: f64 = 3.0;

/// rel_l2 up to which the golden's ranks hold copies of one tensor although not the same bits: two roundings
/// to bfloat16 (2^-8) lie well below, shards of one tensor (independent numbers: about 1.4) far above.
pub const COPIES_DIFFER: f64 = 1e-2;

/// rho (the candidate's error against a truth over the golden's) beyond which a layer drifts. Source:
/// healthy layers reached 0.94-1.09 where only the order of sums differs, 0.76-1.31 with one
/// legitimate extra rounding.
pub const TRUTH_RHO: f64 = 1.5;

/// rho below which the candidate is the better one. Source: see [`TRUTH_RHO`].
pub const TRUTH_BETTER: f64 = 0.8;

/// Growth of rho from a layer's inputs to its output that marks an origin. Source: its arg-max was
/// right in 98.9 % of the detected cases.
pub const TRUTH_JUMP: f64 = 1.2;

/// Fewest elements for which rho is formed: the spread of a ratio of two errors over n elements is
/// about sqrt(1/n).
pub const TRUTH_LEAST: u64 = 64;

/// A golden further than this from the truth computes something else; rho says nothing then.
pub const TRUTH_FAR_OFF: f64 = 0.3;

/// Magnitudes below which errors are held absolutely, so that they enter no relative error. Source:
/// Huawei's operator precision standard: 2^-11 fp16, 2^-8 bf16, 2^-14 fp32.
pub fn vendor_small(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        DType::F32 => 2f64.powi(-14),
        _ => 0.0,
    }
}

/// Levels of Huawei's dual-benchmark comparison: how much larger than the golden's error against a
/// higher-precision truth the candidate's may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Ordinary operators.
    L0,
    /// Stricter.
    L1,
    /// Strictest.
    L2,
}

impl Level {
    /// As the standard names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::L0 => "L0",
            Self::L1 => "L1",
            Self::L2 => "L2",
        }
    }

    /// Limits on the ratios of largest relative error, mean relative error and RMSE. Source: Huawei's
    /// operator precision standard: max 10/5/2, mean 2/1.5/1.2, RMSE 2/1.5/1.2.
    pub fn ratios(self) -> [f64; 3] {
        match self {
            Self::L0 => [10.0, 2.0, 2.0],
            Self::L1 => [5.0, 1.5, 1.5],
            Self::L2 => [2.0, 1.2, 1.2],
        }
    }
}

/// Fewest outputs that form a peer group: a median of fewer is one layer's word.
pub const PEERS_LEAST: usize = 4;

/// How many times its group's median a member may be off before it is an origin of its own.
pub const PEERS_APART: f64 = 3.0;
