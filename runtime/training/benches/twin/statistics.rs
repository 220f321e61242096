//! Medians and middle halves of a few times.

/// Where the middle half of some numbers lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    /// A quarter of the numbers is below this.
    pub(crate) low: f64,
    pub(crate) median: f64,
    /// A quarter is above this.
    pub(crate) high: f64,
}

impl Spread {
    /// The quartiles of some numbers, in any order, with linear interpolation between neighbors. NaN without numbers.
    pub(crate) fn of(numbers: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = share * sorted.len().saturating_sub(1) as f64;
            let (below, above) = (place.floor() as usize, place.ceil() as usize);
            match (sorted.get(below), sorted.get(above)) {
                (Some(below), Some(above)) => below + (above - below) * place.fract(),
                _ => f64::NAN,
            }
        };
        Self { low: at(0.25), median: at(0.5), high: at(0.75) }
    }
}
