//! Implements `wit/run.wit`: one function for each of the interface, in its order.

use wasmtime::component::Resource;

use crate::bindings::run::Host;
use crate::fault::GuestFault;
use crate::refusal::Refusal;
use crate::reports::{Combine, Measure, Reports};
use crate::state::{HostContext, TensorEntry};

impl Host for HostContext<'_> {
    fn position(&mut self) -> wasmtime::Result<u32> {
        self.enter("run.position")?;
        Ok(self.train_state().hooks.position())
    }

    fn planned(&mut self) -> wasmtime::Result<u32> {
        self.enter("run.planned")?;
        Ok(self.train_state().hooks.planned_steps())
    }

    fn metric(&mut self, name: String, value: f32) -> Result<(), Refusal> {
        self.enter("run.metric")?;
        self.reports.metric(&name, Measure::Number(value), Combine::Mean)
    }

    fn metric_of(&mut self, name: String, value: Resource<TensorEntry>) -> Result<(), Refusal> {
        self.enter("run.metric-of")?;
        let measure = Reports::measure(&self.held(&value)?)?;
        self.reports.metric(&name, measure, Combine::Mean)
    }

    fn add_metric(&mut self, name: String, value: f32) -> Result<(), Refusal> {
        self.enter("run.add-metric")?;
        self.reports.metric(&name, Measure::Number(value), Combine::Sum)
    }

    fn add_metric_of(&mut self, name: String, value: Resource<TensorEntry>) -> Result<(), Refusal> {
        self.enter("run.add-metric-of")?;
        let measure = Reports::measure(&self.held(&value)?)?;
        self.reports.metric(&name, measure, Combine::Sum)
    }

    fn log(&mut self, line: String) -> wasmtime::Result<()> {
        self.enter("run.log")?;
        self.reports.line(&line);
        Ok(())
    }

    fn fault(&mut self, message: String, file: String, line: u32, column: u32) -> wasmtime::Result<()> {
        self.enter("run.fault")?;
        self.fault = Some(GuestFault::new(&message, &file, line, column));
        Ok(())
    }
}
