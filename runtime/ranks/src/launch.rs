//! How this process was started, read from the environment variables of launchers.

use tunebox_foundation::explain::ensure;

use crate::RankError;

/// The largest number of ranks of a run.
const MAX_COUNT: usize = 4096;

/// A program that starts the ranks of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpirun` of MPICH or of an MPI that descends from it, such as Intel MPI; or `srun --mpi=pmi2`.
    Mpich,
    /// `srun` of Slurm.
    Slurm,
    /// `torchrun` of PyTorch, or a program that sets the same variables.
    Torchrun,
}

impl Launcher {
    /// Returns the launcher's name for messages, such as Open MPI's `mpirun`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "Open MPI's `mpirun`",
            Self::Mpich => "MPICH's `mpirun`",
            Self::Slurm => "Slurm's `srun`",
            Self::Torchrun => "`torchrun`",
        }
    }

    /// Returns the hint for a process of this launcher that finds no MPI library, or one of another MPI.
    pub(crate) fn library_hint(self) -> String {
        let hint = match self {
            Self::OpenMpi => {
                "install Open MPI on every machine (`apt install openmpi-bin libopenmpi3`), or set `TUNEBOX_MPI` to \
                 the library file of the MPI whose `mpirun` you use"
            }
            Self::Mpich => {
                "install MPICH on every machine (`apt install mpich libmpich12`), or set `TUNEBOX_MPI` to the library \
                 file of the MPI whose `mpirun` you use"
            }
            Self::Slurm => {
                "use `srun --mpi=pmix` with Open MPI or `srun --mpi=pmi2` with MPICH, and set `TUNEBOX_MPI` to the \
                 library file of that MPI"
            }
            Self::Torchrun => "`torchrun` needs no MPI library",
        };
        hint.to_owned()
    }
}

/// How this process was started as one rank of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The program that started the ranks.
    pub launcher: Launcher,
    /// The number of this rank, from 0. Over MPI the number that the library gives it counts: that of the transport.
    pub rank: usize,
    /// The number of ranks, at least 2.
    pub count: usize,
    /// Host and port at which rank 0 listens; `None` if the ranks are connected by MPI.
    pub address: Option<(String, u16)>,
    /// The file name or path of the MPI library, from `TUNEBOX_MPI`; `None` to try the usual names.
    pub library: Option<String>,
}

/// The variables for number and count of the ranks that MPI launchers set. The last row is that of a step of Slurm.
const VARIABLES: [(Launcher, &str, &str); 3] = [
    (Launcher::OpenMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    (Launcher::Mpich, "PMI_RANK", "PMI_SIZE"),
    (Launcher::Slurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
];

/// Reads from environment variables how this process was started; `variable` returns the value of a variable, and an
/// empty value counts as not set. Returns `None` if no launcher started this process, or started it as the only rank.
///
/// The first of these launchers whose variables are set counts; an MPI launcher (2 to 4) that started one rank only
/// gives way to the variables of `torchrun`:
///
/// 1. `torchrun` itself: `RANK` and `WORLD_SIZE`, if `TORCHELASTIC_RUN_ID` is set too. Only `torchrun` sets that
///    variable for its workers, and they also have the variables of an `srun` or `mpirun` that started `torchrun`.
/// 2. Open MPI: `OMPI_COMM_WORLD_RANK` and `OMPI_COMM_WORLD_SIZE`.
/// 3. MPICH, and Slurm with PMI: `PMI_RANK` and `PMI_SIZE`.
/// 4. Slurm: `SLURM_PROCID` and `SLURM_STEP_NUM_TASKS`, if `SLURM_STEP_ID` is set. `SLURM_NTASKS` is not read: in an
///    `sbatch` script and a shell of `salloc` it is the number of tasks that can run, and the script runs once.
/// 5. Programs that set the variables of `torchrun`: `RANK` and `WORLD_SIZE`.
///
/// Over TCP (1 and 5) rank 0 listens at `MASTER_ADDR` and `MASTER_PORT`; with `torchrun` itself at the next port,
/// because its own store holds `MASTER_PORT`.
///
/// # Errors
/// - [`RankError::Variable`] for a value that is not a number, a rank that is not below the count, a count of 0 or over
///   4096, and a port without a successor.
/// - [`RankError::NoVariable`] if only one of two variables of an MPI launcher is set, or an address is missing.
pub fn find_launch(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Launch>, RankError> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let has_torch = variable("RANK").is_some() && variable("WORLD_SIZE").is_some();
    let is_torchrun = has_torch && variable("TORCHELASTIC_RUN_ID").is_some();
    let is_present = |(launcher, rank, count): &&(Launcher, &'static str, &'static str)| match launcher {
        Launcher::Slurm => ["SLURM_STEP_ID", rank, count].iter().all(|name| variable(name).is_some()),
        _ => variable(rank).is_some() || variable(count).is_some(),
    };
    let torch = has_torch.then_some((Launcher::Torchrun, "RANK", "WORLD_SIZE"));
    let mpi = VARIABLES.iter().find(is_present).filter(|_| !is_torchrun).copied();
    let mut found = None;
    for (launcher, rank, count) in [mpi, torch].into_iter().flatten() {
        let (rank, count) = read_rank(&variable, launcher, rank, count)?;
        if count > 1 {
            found = Some((launcher, rank, count));
            break;
        }
    }
    let Some((launcher, rank, count)) = found else { return Ok(None) };
    let is_tcp = launcher == Launcher::Torchrun;
    let address = if is_tcp { Some(read_address(&variable, is_torchrun)?) } else { None };
    Ok(Some(Launch { launcher, rank, count, address, library: variable("TUNEBOX_MPI") }))
}

/// Reads the number of this rank from the variable called `rank`, and the count of ranks from the one called `count`.
/// Returns (number, count).
///
/// # Errors
/// [`RankError::NoVariable`] if one is not set; [`RankError::Variable`] if one is not a number, the count is 0 or over
/// [`MAX_COUNT`], or the rank is not below the count.
fn read_rank(
    variable: &impl Fn(&str) -> Option<String>,
    launcher: Launcher,
    rank: &str,
    count: &str,
) -> Result<(usize, usize), RankError> {
    let read = |name: &str, present: &str| read_number::<usize>(variable, launcher, name, present);
    let (ranks, number) = (read(count, rank)?, read(rank, count)?);
    ensure((1..=MAX_COUNT).contains(&ranks), || {
        wrong_value_error(count, ranks.to_string(), format!("a run has 1 to {MAX_COUNT} ranks"))
    })?;
    ensure(number < ranks, || {
        wrong_value_error(rank, number.to_string(), format!("`{count}` is `{ranks}`, and ranks begin at 0"))
    })?;
    Ok((number, ranks))
}

/// Reads the host and port at which rank 0 listens: `MASTER_ADDR`, and `MASTER_PORT` or the port after it if
/// `is_torchrun`.
///
/// # Errors
/// [`RankError::NoVariable`] if one is not set; [`RankError::Variable`] if the port is not a number from 1 to 65535, or
/// has no successor and needs one.
fn read_address(variable: &impl Fn(&str) -> Option<String>, is_torchrun: bool) -> Result<(String, u16), RankError> {
    let host = variable("MASTER_ADDR")
        .ok_or_else(|| missing_variable_error(Launcher::Torchrun, "MASTER_ADDR", "WORLD_SIZE"))?;
    let port: u16 = read_number(variable, Launcher::Torchrun, "MASTER_PORT", "WORLD_SIZE")?;
    let listen = port.checked_add(u16::from(is_torchrun)).filter(|_| port > 0);
    Ok((
        host,
        listen
            .ok_or_else(|| wrong_value_error("MASTER_PORT", port.to_string(), "no such port can be used".to_owned()))?,
    ))
}

/// Reads the number in the variable `name`, white space around it ignored. `present` names a variable that is set, for
/// the error if `name` is not.
///
/// # Errors
/// [`RankError::NoVariable`] if it is not set, [`RankError::Variable`] if it is not a number of the type.
fn read_number<N: std::str::FromStr>(
    variable: &impl Fn(&str) -> Option<String>,
    launcher: Launcher,
    name: &str,
    present: &str,
) -> Result<N, RankError> {
    let value = variable(name).ok_or_else(|| missing_variable_error(launcher, name, present))?;
    value.trim().parse().map_err(|_| wrong_value_error(name, value, "a number from 0 is expected".to_owned()))
}

/// Builds the error that the variable `name` is not set, although `present` is and `launcher` sets both.
fn missing_variable_error(launcher: Launcher, name: &str, present: &str) -> RankError {
    RankError::NoVariable { name: name.to_owned(), present: present.to_owned(), launcher }
}

/// Builds the error that the variable `name` cannot have the value `value`; `why` says why.
fn wrong_value_error(name: &str, value: String, why: String) -> RankError {
    RankError::Variable { name: name.to_owned(), value, why }
}

#[cfg(test)]
mod tests;
