//! How numbers are written for people: three significant digits, `—` where there is none.

/// What stands where a number does not exist.
pub const ABSENT: &str = "—";

/// Three significant digits, trailing zeros left out; scientific below 1e-2 and from 1e5 on.
/// Null and non-finite numbers are `—`.
pub fn figure(value: Option<f64>) -> String {
    let Some(x) = value.filter(|x| x.is_finite()) else { return ABSENT.into() };
    if x == 0.0 {
        return "0".into();
    }
    // The rounded value decides the notation, or 0.0099996 would be written as 0.01 and 1e-2 in turn.
    let scientific = format!("{x:.2e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let power: i32 = exponent.parse().unwrap_or(0);
    if !(-2..5).contains(&power) {
        return format!("{}e{power}", trim_zeros(mantissa));
    }
    if power >= 2 {
        let rounded = scientific.parse::<f64>().unwrap_or(x);
        return format!("{rounded:.0}");
    }
    let decimals = usize::try_from(2 - power).unwrap_or(0);
    trim_zeros(&format!("{x:.decimals$}")).to_owned()
}

/// A metric's value: as [`figure`], but a cosine near 1 keeps the digits in which it differs from
/// 1, and is written by them (`1-7.2e-13`) where it has more than four nines.
pub fn metric_figure(metric: &str, value: Option<f64>) -> String {
    match value {
        Some(x) if metric.contains("cosine") && x > 0.9 && x < 1.0 => {
            let short = 1.0 - x;
            if short < 1e-4 {
                return format!("1-{}", figure(Some(format!("{short:.1e}").parse().unwrap_or(short))));
            }
            let text = format!("{x:.*}", (1.0 - short.log10()).ceil() as usize);
            trim_zeros(&text).to_owned()
        }
        _ => figure(value),
    }
}

/// A ratio in words: `2.4 times`, `29 000 times`, `3e12 times`.
pub fn times(ratio: f64) -> String {
    if !ratio.is_finite() {
        return "beyond measure".into();
    }
    if ratio >= 1e9 {
        return format!("{} times", figure(Some(ratio)));
    }
    if ratio < 100.0 {
        return format!("{} times", trim_zeros(&format!("{ratio:.1}")));
    }
    let rounded = format!("{ratio:.1e}").parse::<f64>().unwrap_or(ratio);
    format!("{} times", grouped(rounded as u64))
}

/// An integer with its digits in groups of three: `29 000`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) && digits.len() > 4 {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// A count and its noun: `1 layer`, `3 layers`.
pub fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(count))
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (0.00031, "3.1e-4"),
            (0.009_994, "9.99e-3"),
            (0.009_999_9, "0.01"),
            (0.123_456, "0.123"),
            (12.345, "12.3"),
            (999.96, "1000"),
            (65504.0, "65500"),
            (123_456.0, "1.23e5"),
            (-2.5e-9, "-2.5e-9"),
            (1e300, "1e300"),
        ] {
            assert_eq!(figure(Some(value)), text, "{value:e}");
        }
        assert_eq!(figure(None), "—");
        assert_eq!(figure(Some(f64::NAN)), "—");
        assert_eq!(figure(Some(f64::NEG_INFINITY)), "—");
    }

    #[test]
    fn a_cosine_keeps_its_nines() {
        assert_eq!(metric_figure("cosine", Some(0.999_987_6)), "1-1.2e-5");
        assert_eq!(metric_figure("cosine", Some(1.0)), "1");
        assert_eq!(metric_figure("cosine", Some(0.5)), "0.5");
        assert_eq!(metric_figure("cosine", Some(0.998_765)), "0.9988");
        assert_eq!(metric_figure("rel_l2", Some(0.999_987_6)), "1");
    }

    #[test]
    fn ratios_and_counts_in_words() {
        assert_eq!(times(2.41), "2.4 times");
        assert_eq!(times(29_312.0), "29 000 times");
        assert_eq!(times(f64::INFINITY), "beyond measure");
        assert_eq!(grouped(1234), "1234");
        assert_eq!(grouped(1_234_567), "1 234 567");
        assert_eq!(counted(1, "layer"), "1 layer");
        assert_eq!(counted(2, "layer"), "2 layers");
    }
}
