//! Implements `wit/run.wit`: one function for each of the interface, in its order.

use crate::bindings::run::Host;
use crate::fault::GuestFault;
use crate::refusal::Result;
use crate::reports::{Combine, MetricValue, Reports};
use crate::state::{Handle, HostContext};

impl Host for HostContext<'_> {
    /// Counts the call and returns the number of finished steps of the run.
    fn position(&mut self) -> wasmtime::Result<u32> {
        self.enter("run.position")?;
        Ok(self.train_state().hooks.position())
    }

    /// Counts the call and returns the number of steps that the run plans.
    fn planned(&mut self) -> wasmtime::Result<u32> {
        self.enter("run.planned")?;
        Ok(self.train_state().hooks.planned_steps())
    }

    /// Reports a number that is averaged over the micro-batches of an update. Errors: `invalid-argument` for a name
    /// that the manifest does not declare; `out-of-budget` past the limit `metrics` of values in one call of the
    /// method.
    fn metric(&mut self, name: String, value: f32) -> Result<()> {
        self.enter("run.metric")?;
        self.reports.add_metric(&name, MetricValue::Number(value), Combine::Mean)
    }

    /// Reports a one-element tensor that is averaged over the micro-batches of an update; it is read when the call of
    /// the method ends. Errors: `shape-mismatch` for another number of elements; `invalid-argument` for a name that the
    /// manifest does not declare; `out-of-budget` past the limit `metrics` of values in one call of the method.
    fn metric_of(&mut self, name: String, value: Handle) -> Result<()> {
        self.enter("run.metric-of")?;
        let measure = Reports::tensor_value(&*self.tensor_node(&value)?)?;
        self.reports.add_metric(&name, measure, Combine::Mean)
    }

    /// Reports a number that is summed over the micro-batches of an update. Errors: `invalid-argument` for a name that
    /// the manifest does not declare; `out-of-budget` past the limit `metrics` of values in one call of the method.
    fn add_metric(&mut self, name: String, value: f32) -> Result<()> {
        self.enter("run.add-metric")?;
        self.reports.add_metric(&name, MetricValue::Number(value), Combine::Sum)
    }

    /// Reports a one-element tensor that is summed over the micro-batches of an update; it is read when the call of the
    /// method ends. Errors: `shape-mismatch` for another number of elements; `invalid-argument` for a name that the
    /// manifest does not declare; `out-of-budget` past the limit `metrics` of values in one call of the method.
    fn add_metric_of(&mut self, name: String, value: Handle) -> Result<()> {
        self.enter("run.add-metric-of")?;
        let measure = Reports::tensor_value(&*self.tensor_node(&value)?)?;
        self.reports.add_metric(&name, measure, Combine::Sum)
    }

    /// Counts the call and adds a line to the log, escaped. Drops the line and counts it as dropped, without an error,
    /// if it is too long, or past the number of lines in this call of the method or the bytes of the session.
    fn log(&mut self, line: String) -> wasmtime::Result<()> {
        self.enter("run.log")?;
        self.reports.add_line(&line);
        Ok(())
    }

    /// Stores why the method is about to trap and where in its source, replacing an earlier report. Does not end the
    /// method: the error of its next trap shows the report.
    fn fault(&mut self, message: String, file: String, line: u32, column: u32) -> wasmtime::Result<()> {
        self.enter("run.fault")?;
        self.fault = Some(GuestFault::new(&message, &file, line, column));
        Ok(())
    }
}
