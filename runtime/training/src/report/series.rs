//! The numbers of one metric over the steps, thinned so that a long run needs no more memory than a short one.

/// The most points of a series. With one more, neighbors are averaged in pairs.
const MAX_POINTS: usize = 256;

/// The share of the points at either end that [`Series::trend`] compares.
const TREND_SHARE: usize = 10;

/// The largest magnitude of a number that is kept: sums of larger ones would not be finite.
const MAX_MAGNITUDE: f64 = 1e100;

/// A step and a value.
pub(super) type Point = (f64, f64);

/// The numbers of one metric over the steps. Numbers that are not finite or beyond 1e100 are left out.
#[derive(Debug, Clone)]
pub(super) struct Series {
    /// Step and value; each is the mean of `per_point` numbers.
    points: Vec<Point>,
    /// Numbers in a point: a power of two.
    per_point: usize,
    /// The sums of steps and values that are not a whole point yet, and their number.
    pending: (f64, f64, usize),
    /// The first number.
    pub(super) first: Point,
    /// The last number.
    pub(super) last: Point,
    /// The smallest number, with the first step that has it.
    pub(super) lowest: Point,
    /// The largest number, with the first step that has it.
    pub(super) highest: Point,
    count: usize,
}

impl Series {
    /// Creates a series of one number; `None` if the number is not finite or beyond 1e100.
    pub(super) fn new(step: f64, value: f64) -> Option<Self> {
        let point = (step, value);
        is_kept(value).then(|| Self {
            points: vec![point],
            per_point: 1,
            pending: (0.0, 0.0, 0),
            first: point,
            last: point,
            lowest: point,
            highest: point,
            count: 1,
        })
    }

    /// Adds a number, unless it is not finite or beyond 1e100. Averages neighboring points in pairs once there are more
    /// than [`MAX_POINTS`].
    pub(super) fn push(&mut self, step: f64, value: f64) {
        if !is_kept(value) {
            return;
        }
        self.last = (step, value);
        self.lowest = if value < self.lowest.1 { self.last } else { self.lowest };
        self.highest = if value > self.highest.1 { self.last } else { self.highest };
        self.count += 1;
        let (steps, values, count) = self.pending;
        self.pending = (steps + step, values + value, count + 1);
        if self.pending.2 == self.per_point {
            self.points.extend(self.pending_point());
            self.pending = (0.0, 0.0, 0);
        }
        if self.points.len() > MAX_POINTS {
            let rest = self.points.chunks_exact(2).remainder().first().copied();
            let halved = self.points.chunks_exact(2).map(|pair| mean_point(pair[0], pair[1])).collect();
            self.points = halved;
            // The odd point at the end becomes the beginning of the next.
            if let Some((step, value)) = rest {
                let count = self.per_point as f64;
                self.pending = (step * count, value * count, self.per_point);
            }
            self.per_point *= 2;
        }
    }

    /// Returns the points, the last of which may be the mean of fewer numbers than the others.
    pub(super) fn points(&self) -> Vec<Point> {
        self.points.iter().copied().chain(self.pending_point()).collect()
    }

    /// The mean of the numbers that are not a whole point yet; `None` if there are none.
    fn pending_point(&self) -> Option<Point> {
        let (steps, values, count) = self.pending;
        (count > 0).then(|| (steps / count as f64, values / count as f64))
    }

    /// The number of numbers.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The means of the first and of the last tenth of the points, at least one point each: noisy numbers at either end
    /// do not decide. `None` for fewer than two points.
    pub(super) fn trend(&self) -> Option<(f64, f64)> {
        let points = self.points();
        let share = (points.len() / TREND_SHARE).max(1);
        let mean = |part: &[Point]| part.iter().map(|(_, value)| value).sum::<f64>() / part.len() as f64;
        (points.len() > 1).then(|| (mean(&points[..share]), mean(&points[points.len() - share..])))
    }
}

/// Whether a number is neither infinite, NaN nor of a magnitude beyond [`MAX_MAGNITUDE`].
fn is_kept(value: f64) -> bool {
    value.abs() <= MAX_MAGNITUDE
}

/// The means of the steps and of the values of two points.
fn mean_point(one: Point, other: Point) -> Point {
    (f64::midpoint(one.0, other.0), f64::midpoint(one.1, other.1))
}

/// Smooths a line by the mean over a window of about a twentieth of its points around each: narrower at the beginning,
/// where numbers change fast and the first counts, and at the end with as many points before as elsewhere. `None` for
/// fewer than 40 points, which are read easily as they are.
pub(super) fn smooth(points: &[Point]) -> Option<Vec<Point>> {
    if points.len() < 40 {
        return None;
    }
    let half = points.len() / 40 + 1;
    let smoothed = (0..points.len()).map(|at| {
        let reach = half.min(at);
        let window = &points[at - reach..=(at + reach).min(points.len() - 1)];
        (points[at].0, window.iter().map(|(_, value)| value).sum::<f64>() / window.len() as f64)
    });
    Some(smoothed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: impl IntoIterator<Item = f64>) -> Series {
        let mut values = values.into_iter().enumerate();
        let mut series = Series::new(1.0, values.next().unwrap().1).unwrap();
        values.for_each(|(at, value)| series.push(at as f64 + 1.0, value));
        series
    }

    #[test]
    fn a_short_series_has_every_number() {
        let series = series([3.0, 1.0, f64::NAN, 2.0]);
        assert_eq!(series.points(), [(1.0, 3.0), (2.0, 1.0), (4.0, 2.0)]);
        assert_eq!((series.lowest, series.highest, series.count()), ((2.0, 1.0), (1.0, 3.0), 3));
    }

    #[test]
    fn a_long_series_has_few_points_with_the_mean_of_all() {
        let series = series((1..=100_001).map(f64::from));
        let points = series.points();
        assert!(points.len() <= MAX_POINTS + 1 && points.len() >= MAX_POINTS / 2, "{}", points.len());
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0), "the steps rise");
        assert!(points.iter().all(|(step, value)| step == value), "means of steps and of values");
        assert_eq!((series.first, series.last), ((1.0, 1.0), (100_001.0, 100_001.0)));
        let (early, late) = series.trend().unwrap();
        assert!(early < 12_000.0 && late > 88_000.0, "{early} {late}");
    }

    #[test]
    fn a_smooth_line_keeps_its_beginning_and_its_length() {
        let noisy: Vec<Point> = (0..60).map(|at| (f64::from(at), f64::from(at % 2))).collect();
        let smooth = smooth(&noisy).unwrap();
        assert_eq!((smooth.len(), smooth[0]), (60, noisy[0]));
        assert!(smooth[20..].iter().all(|(_, value)| (value - 0.5).abs() < 0.2));
        assert!(super::smooth(&noisy[..39]).is_none());
    }
}
