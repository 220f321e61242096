//! What a method reports in one call: metrics under declared names, and log lines.
//!
//! Metrics given as tensors are read when the call ends. Lines are escaped here; the run decides where
//! they are shown.

use std::sync::Arc;

use candle_core::DType;
use tunebox_compute::budget::Reservation;
use tunebox_compute::ops::Node;
use tunebox_foundation::format::seven_digits;

use crate::limits::Limits;
use crate::printable::printable;
use crate::refusal::ErrorCode;
use crate::refusal::{Refusal, Result, ensure};
use crate::settings::{CallEvent, CallObserver};

/// How the values of a metric from the micro-batches of one update are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// Averaged.
    Mean,
    /// Added up, for values that are already divided by a count of the whole accumulation window.
    Sum,
}

/// The value of a metric: a number, or the tensor that holds it.
#[derive(Debug)]
pub(crate) enum MetricValue {
    /// A number.
    Number(f32),
    /// A tensor of one element, and the reservation of its bytes.
    Tensor { value: candle_core::Tensor, _bytes: Arc<Reservation> },
}

/// Metrics and log lines of the current call, with the limits on them.
#[derive(Debug)]
pub(crate) struct Reports {
    names: Vec<String>,
    limits: Limits,
    /// Bytes of all lines kept since the session started; see [`log_bytes`](Self::log_bytes).
    log_bytes: u64,
    /// The index of the metric's name in `names`, the value, and how values of one update are combined; in the order
    /// of the reports.
    metrics: Vec<(usize, MetricValue, Combine)>,
    lines: Vec<String>,
    dropped: u32,
    /// Is called with every line that is recorded.
    observer: Option<CallObserver>,
}

impl Reports {
    /// Creates empty reports; `names` are the metrics that the manifest declares.
    pub(crate) fn new(names: Vec<String>, limits: &Limits) -> Self {
        let limits = limits.clone();
        Self { names, limits, log_bytes: 0, metrics: Vec::new(), lines: Vec::new(), dropped: 0, observer: None }
    }

    /// Returns the reports with this observer, which is called with every line as soon as it is recorded.
    pub(crate) fn with_observer(self, observer: Option<CallObserver>) -> Self {
        Self { observer, ..self }
    }

    /// Appends a value of a declared metric to those of the current call. A name may get several values in one call,
    /// and all are kept.
    ///
    /// Errors: `invalid-argument` for an undeclared name; `out-of-budget` if this call already has `metrics` values,
    /// all names together.
    pub(crate) fn add_metric(&mut self, name: &str, value: MetricValue, combine: Combine) -> Result<()> {
        let Some(place) = self.names.iter().position(|known| known == name) else {
            let names: Vec<String> = self.names.iter().map(|name| format!("`{name}`")).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let name = printable(name, 64);
            let message = format!("`{name}` is not a metric of the manifest, which lists {names}: add it to `metrics`");
            return Err(Refusal::argument(message));
        };
        let most = self.limits.metrics;
        let full = || Refusal::new(ErrorCode::OutOfBudget, format!("a step reports at most {most} values"));
        ensure(self.metrics.len() < most as usize, full)?;
        self.metrics.push((place, value, combine));
        Ok(())
    }

    /// Converts a one-element tensor into a value that is read back as `f32` when the call ends, without its graph.
    /// Keeps the tensor's bytes reserved until then. Errors: `shape-mismatch` for another number of elements.
    pub(crate) fn tensor_value(node: &Node) -> Result<MetricValue> {
        let shape = node.tensor.dims();
        let message = || format!("a metric is one element, this is {shape:?}");
        ensure(node.tensor.elem_count() == 1, || Refusal::new(ErrorCode::ShapeMismatch, message()))?;
        let value = node.tensor.detach().to_dtype(DType::F32)?.reshape(())?;
        Ok(MetricValue::Tensor { value, _bytes: Arc::clone(&node.bytes) })
    }

    /// Escapes and records a log line, and tells the observer of it. Only increments the number of dropped lines if the
    /// line is longer than `log_line_bytes`, if this call has `log_lines` lines already, or if the lines of the
    /// session, with one byte for each line's end, would pass `run_log_bytes`. Bytes are counted before escaping.
    pub(crate) fn add_line(&mut self, line: &str) {
        let after = self.log_bytes.saturating_add(line.len() as u64 + 1);
        let limits = &self.limits;
        let is_long = line.len() > limits.log_line_bytes || after > limits.run_log_bytes;
        if is_long || self.lines.len() >= limits.log_lines as usize {
            self.dropped = self.dropped.saturating_add(1);
        } else {
            self.log_bytes = after;
            let line = printable(line, limits.log_line_bytes * 8);
            self.observer.iter().for_each(|CallObserver(observer)| observer(CallEvent::Line(&line)));
            self.lines.push(line);
        }
    }

    /// Returns the bytes, before escaping, of all log lines kept since the session started, plus one for the end of
    /// each line. Lines that were taken count as well.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log_bytes
    }

    /// Removes and returns the escaped lines recorded since the last time, and the number of lines dropped since then.
    /// Also discards the recorded metrics that were not taken.
    pub(crate) fn take_lines(&mut self) -> (Vec<String>, u32) {
        self.metrics.clear();
        (std::mem::take(&mut self.lines), std::mem::take(&mut self.dropped))
    }

    /// Removes and returns the metrics recorded since the last time, in the order of the reports, as name, value and
    /// way to combine. A name that was reported twice is there twice. Reads tensors back and rounds values to seven
    /// significant digits. Errors: the device fails; all metrics are lost then.
    pub(crate) fn take_metrics(&mut self) -> Result<Vec<(String, f64, Combine)>, candle_core::Error> {
        let mut metrics = Vec::with_capacity(self.metrics.len());
        for (place, value, combine) in self.metrics.drain(..) {
            let number = match value {
                MetricValue::Number(number) => number,
                MetricValue::Tensor { value, .. } => value.to_scalar::<f32>()?,
            };
            let Some(name) = self.names.get(place) else { continue };
            metrics.push((name.clone(), seven_digits(number.into()), combine));
        }
        Ok(metrics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_has_seven_significant_digits() {
        for (given, kept) in
            [(1.234_567_8_f32, 1.234_568), (-0.000_123_456_78, -0.000_123_456_8), (16_777_215.0, 16_777_220.0)]
        {
            assert_eq!(seven_digits(given.into()), kept);
        }
        assert!(seven_digits(f64::NAN).is_nan());
        assert_eq!(
            (seven_digits(f64::INFINITY), seven_digits(0.0), seven_digits(0.1_f32.into())),
            (f64::INFINITY, 0.0, 0.1)
        );
    }

    #[test]
    fn a_line_is_told_when_it_is_recorded_and_a_dropped_one_is_not() {
        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let list = Arc::clone(&told);
        let observer = CallObserver(Arc::new(move |event| {
            if let CallEvent::Line(line) = event {
                list.lock().unwrap().push(line.to_owned());
            }
        }));
        let limits = Limits { log_lines: 1, ..Limits::default() };
        let mut reports = Reports::new(Vec::new(), &limits).with_observer(Some(observer));
        ["a\u{1b}b", "dropped"].iter().for_each(|line| reports.add_line(line));
        assert_eq!(*told.lock().unwrap(), reports.take_lines().0);
        assert_eq!(told.lock().unwrap().len(), 1);
    }

    #[test]
    fn lines_past_the_bytes_of_a_run_are_dropped_however_few_a_call_writes() {
        let mut reports = Reports::new(Vec::new(), &Limits { run_log_bytes: 20, ..Limits::default() });
        let mut dropped = 0;
        for _ in 0..5 {
            reports.add_line("seven b");
            dropped += reports.take_lines().1;
        }
        assert_eq!((reports.log_bytes(), dropped), (16, 3));
    }
}
