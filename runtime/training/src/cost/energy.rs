//! The energy that a device takes: of the processor by its counters (RAPL, as Linux shows them in
//! `/sys/class/powercap`) where they can be read, else estimated from the threads that compute and the memory; of an
//! NVIDIA GPU by NVML.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tunebox_compute::Device;
use tunebox_compute::device::joules;

/// Where Linux shows the counters.
const ZONES: &str = "/sys/class/powercap";

/// Lists the folder of the energy counters (RAPL) and the targets of the links in it, for the rules of a confined
/// process. Empty where the folder is missing.
pub(crate) fn counter_files() -> Vec<PathBuf> {
    let entries = fs::read_dir(ZONES).into_iter().flatten().flatten();
    let zones = entries.filter_map(|entry| entry.path().canonicalize().ok());
    zones.chain(Path::new(ZONES).exists().then(|| ZONES.into())).collect()
}

/// The power of a busy core and of a gibibyte of memory in watts: means over processors and memories of the Green
/// Algorithms calculator (Lannelongue et al. 2021).
const WATTS_OF_CORE: f64 = 12.0;
const WATTS_OF_GIBIBYTE: f64 = 0.3725;

/// An amount of energy, and where it is known from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Energy {
    /// The energy in joules.
    pub joules: f64,
    /// Where it is known from.
    pub source: EnergySource,
}

/// Where an amount of energy is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnergySource {
    /// The counters of processor and memory, which count every program of the machine.
    Rapl,
    /// The counter of the GPU, which counts every program on it. The rest of the machine is not counted.
    Nvml,
    /// No counter can be read: assumed from the number of threads that compute, and from the memory.
    Assumed,
}

impl fmt::Display for Energy {
    /// Writes the energy in watt-hours, from 1000 on in kilowatt-hours, and its source: `1.20 Wh, counted by RAPL`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.joules / 3600.0;
        let (amount, unit) = if hours < 1000.0 { (hours, "Wh") } else { (hours / 1000.0, "kWh") };
        write!(formatter, "{amount:.2} {unit}, ")?;
        match self.source {
            EnergySource::Rapl => formatter.write_str("counted by RAPL"),
            EnergySource::Nvml => formatter.write_str("counted by NVML, of the GPU alone"),
            EnergySource::Assumed => {
                write!(formatter, "assumed from {WATTS_OF_CORE} W a core and {WATTS_OF_GIBIBYTE:.2} W a GiB")
            }
        }
    }
}

/// Counts the energy from when it was opened.
#[derive(Debug)]
pub(super) enum Counter {
    /// The zones of processors and their memory.
    Zones(Vec<Zone>),
    /// An accelerator with a counter, and its joules when it was opened.
    Accelerator(Device, f64),
    /// No counter of a CPU can be read.
    Assumed,
    /// Nothing tells the energy of the device.
    Unknown,
}

impl Counter {
    /// Opens the energy counters of the device. The energy of an accelerator without a counter is unknown; that of a
    /// CPU whose counters cannot be read is estimated.
    pub(super) fn open(device: &Device) -> Self {
        if !device.is_cpu() {
            return joules(device).map_or(Self::Unknown, |joules| Self::Accelerator(device.clone(), joules));
        }
        let zones = Zone::list(Path::new(ZONES));
        if zones.is_empty() { Self::Assumed } else { Self::Zones(zones) }
    }

    /// Adds what the counters of the processor have gained since they were read last. Does nothing for other sources of
    /// energy.
    pub(super) fn read(&mut self) {
        if let Self::Zones(zones) = self {
            zones.iter_mut().for_each(Zone::read);
        }
    }

    /// Reads the counters, and returns the energy since they were opened, `seconds` ago; `memory` is the peak memory in
    /// bytes. `None` if the energy is unknown. Only the estimate without a counter uses `seconds` and `memory`.
    pub(super) fn energy(&mut self, seconds: f64, memory: u64) -> Option<Energy> {
        self.read();
        match self {
            Self::Zones(zones) => {
                let microjoules: u64 = zones.iter().map(|zone| zone.used).sum();
                Some(Energy { joules: microjoules as f64 / 1e6, source: EnergySource::Rapl })
            }
            Self::Accelerator(device, begin) => {
                Some(Energy { joules: joules(device)? - *begin, source: EnergySource::Nvml })
            }
            Self::Assumed => {
                let gibibytes = memory as f64 / (1_u64 << 30) as f64;
                let watts = WATTS_OF_CORE * rayon::current_num_threads() as f64 + WATTS_OF_GIBIBYTE * gibibytes;
                Some(Energy { joules: watts * seconds, source: EnergySource::Assumed })
            }
            Self::Unknown => None,
        }
    }
}

/// A counter of a part of the machine, in microjoules. It begins again at 0 after its range.
#[derive(Debug)]
pub(super) struct Zone {
    file: PathBuf,
    range: u64,
    last: u64,
    /// Microjoules since the zone was opened.
    used: u64,
}

impl Zone {
    /// Opens the zones of processors and of memory beside them in the folder `root`. Leaves out zones of parts that the
    /// zone of the processor includes, and those that cannot be read.
    fn list(root: &Path) -> Vec<Self> {
        let entries = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut folders: Vec<PathBuf> = entries.collect();
        folders.sort();
        folders.iter().filter_map(|folder| Self::open(folder)).collect()
    }

    /// Opens the zone in a folder; `None` if the zone is neither a processor nor its memory, or cannot be read.
    fn open(folder: &Path) -> Option<Self> {
        let name = fs::read_to_string(folder.join("name")).ok()?;
        if !name.starts_with("package") && name.trim() != "dram" {
            return None;
        }
        let range = read_number(&folder.join("max_energy_range_uj"))?;
        let file = folder.join("energy_uj");
        Some(Self { last: read_number(&file)?, file, range, used: 0 })
    }

    /// Adds what the counter has gained since it was read last, also if it began again at 0 once; nothing if it cannot
    /// be read now.
    fn read(&mut self) {
        let Some(now) = read_number(&self.file) else { return };
        self.used += if now >= self.last { now - self.last } else { (self.range - self.last).saturating_add(now) };
        self.last = now;
    }
}

/// Reads a file that holds one number; `None` if it cannot be read or holds something else.
fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a zone as Linux shows it.
    fn zone(root: &Path, folder: &str, name: &str, energy: u64) {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).unwrap();
        for (file, text) in [("name", name.to_owned()), ("max_energy_range_uj", "1000000".into())] {
            fs::write(folder.join(file), text + "\n").unwrap();
        }
        fs::write(folder.join("energy_uj"), format!("{energy}\n")).unwrap();
    }

    #[test]
    fn processors_and_memory_are_counted_over_the_end_of_their_range_and_their_parts_are_not() {
        let root = tempfile::tempdir().unwrap();
        zone(root.path(), "intel-rapl:0", "package-0", 900_000);
        zone(root.path(), "intel-rapl:0:0", "core", 5);
        zone(root.path(), "intel-rapl:0:1", "dram", 100_000);
        let mut counter = Counter::Zones(Zone::list(root.path()));
        zone(root.path(), "intel-rapl:0", "package-0", 200_000);
        zone(root.path(), "intel-rapl:0:0", "core", 700_000);
        zone(root.path(), "intel-rapl:0:1", "dram", 400_000);
        let energy = counter.energy(1.0, 0).unwrap();
        assert_eq!((energy.joules, energy.source), (0.6, EnergySource::Rapl));
        assert_eq!(counter.energy(1.0, 0).unwrap().joules, 0.6, "what was counted counts once");
    }

    #[test]
    fn without_a_counter_the_energy_is_assumed_and_says_from_what() {
        let energy = Counter::Assumed.energy(3600.0, 2 << 30).unwrap();
        let watts = 12.0 * rayon::current_num_threads() as f64 + 0.745;
        assert!((energy.joules / 3600.0 - watts).abs() < 1e-9);
        assert!(energy.to_string().ends_with("Wh, assumed from 12 W a core and 0.37 W a GiB"), "{energy}");
        assert!(Zone::list(Path::new("/nothing")).is_empty());
    }
}
