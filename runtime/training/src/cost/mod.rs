//! What a run costs: its time, the energy and the price of that time. `timing` estimates the time from parts of the run
//! that were measured, `energy` reads counters or estimates the power.

mod energy;
mod timing;

use std::fmt;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tunebox_compute::Device;
use tunebox_foundation::format::{duration, seven_digits};

pub(crate) use energy::counter_files;
pub use energy::{Energy, EnergySource};
pub(crate) use timing::{Parts, Timing};

use energy::Counter;

/// What a run costs from the beginning of its planning to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Cost {
    /// The time in seconds.
    pub seconds: f64,
    /// The energy; `None` if nothing on this machine tells it.
    pub energy: Option<Energy>,
    /// The price of the time, in the currency of `run.hourly-price`; `None` if that is not given.
    pub price: Option<f64>,
}

impl Cost {
    /// Returns the cost of so many seconds at a price for each hour, with all numbers rounded to seven digits.
    pub(crate) fn new(seconds: f64, energy: Option<Energy>, hourly_price: Option<f64>) -> Self {
        let energy = energy.map(|energy| Energy { joules: seven_digits(energy.joules), ..energy });
        let price = hourly_price.map(|price| seven_digits(price * seconds / 3600.0));
        Self { seconds: seven_digits(seconds), energy, price }
    }

    /// Formats the price with two decimals, or with four if it is below 0.1: `12.50`, `0.0031`. `None` if no price is
    /// given.
    #[must_use]
    pub fn price_text(&self) -> Option<String> {
        self.price.map(|price| if price < 0.1 { format!("{price:.4}") } else { format!("{price:.2}") })
    }
}

impl fmt::Display for Cost {
    /// Writes time, price and energy, as far as they are known: `4 min 3 s, price 0.07, 1.20 Wh, counted by RAPL`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&duration(self.seconds))?;
        if let Some(price) = self.price_text() {
            write!(formatter, ", price {price}")?;
        }
        self.energy.iter().try_for_each(|energy| write!(formatter, ", {energy}"))
    }
}

/// Measures time and energy since the planning of a run began.
#[derive(Debug)]
pub(crate) struct Meter {
    begun: Instant,
    counter: Counter,
}

impl Meter {
    /// Starts to count the energy of `device`. The time counts from `begun`.
    pub(crate) fn start(begun: Instant, device: &Device) -> Self {
        Self { begun, counter: Counter::open(device) }
    }

    /// The seconds since the planning of the run began.
    pub(crate) fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// Reads the counters, which begin again at 0 every few minutes of full load. Must be called more often than that.
    pub(crate) fn read(&mut self) {
        self.counter.read();
    }

    /// Returns the cost of `seconds` with the mean power so far. `memory` is the peak memory in bytes, for an estimate
    /// of the power.
    pub(crate) fn cost_of(&mut self, seconds: f64, memory: u64, hourly_price: Option<f64>) -> Cost {
        let energy = self.counter.energy(self.seconds(), memory);
        let share = seconds / self.seconds().max(1e-9);
        Cost::new(seconds, energy.map(|energy| Energy { joules: energy.joules * share, ..energy }), hourly_price)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_shows_what_is_known() {
        let energy = Some(Energy { joules: 4320.0, source: EnergySource::Rapl });
        let whole = Cost::new(243.0, energy, Some(1.0));
        assert_eq!(whole.to_string(), "4 min 3 s, price 0.0675, 1.20 Wh, counted by RAPL");
        assert_eq!(Cost::new(5.0, None, None).to_string(), "5.0 s");
        assert_eq!(Cost::new(36_000.0, None, Some(2.5)).price_text().as_deref(), Some("25.00"));
    }

    #[test]
    fn the_energy_of_a_longer_time_is_that_of_the_mean_power() {
        let mut meter = Meter::start(Instant::now() - std::time::Duration::from_secs(10), &Device::Cpu);
        let joules = |cost: Cost| cost.energy.map(|energy| energy.joules).unwrap_or_default();
        let (once, twice) = (joules(meter.cost_of(100.0, 0, None)), joules(meter.cost_of(200.0, 0, None)));
        assert!((twice / once - 2.0).abs() < 0.01, "{once} and {twice}");
    }
}
