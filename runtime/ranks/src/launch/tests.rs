use super::*;

/// Finds the launch in the environment of the given variables, written as `NAME=value` and separated by spaces.
fn find(variables: &str) -> Result<Option<Launch>, RankError> {
    let pairs: Vec<_> = variables.split_whitespace().filter_map(|pair| pair.split_once('=')).collect();
    find_launch(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
}

const TORCH: &str = "RANK=3 WORLD_SIZE=4 MASTER_ADDR=node1 MASTER_PORT=29500";

#[test]
fn launchers_are_found_by_their_variables() {
    let cases = [
        ("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", Launcher::OpenMpi, 1, 2),
        ("PMI_RANK=0 PMI_SIZE=4", Launcher::Mpich, 0, 4),
        // Hydra and Open MPI start their processes by `srun` inside an allocation.
        ("PMI_RANK=2 PMI_SIZE=3 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2", Launcher::Mpich, 2, 3),
        ("SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=2", Launcher::Slurm, 1, 2),
        (&format!("{TORCH} OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2"), Launcher::OpenMpi, 1, 2),
        (&format!("{TORCH} SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2"), Launcher::Slurm, 1, 2),
        (
            &format!("{TORCH} TORCHELASTIC_RUN_ID=a SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2"),
            Launcher::Torchrun,
            3,
            4,
        ),
        (TORCH, Launcher::Torchrun, 3, 4),
        (&format!("{TORCH} SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1"), Launcher::Torchrun, 3, 4),
    ];
    for (variables, launcher, rank, count) in cases {
        let launch = find(variables).unwrap().unwrap();
        assert_eq!((launch.launcher, launch.rank, launch.count), (launcher, rank, count), "{variables}");
        assert_eq!(launch.address.is_some(), launcher == Launcher::Torchrun, "{variables}");
    }
}

#[test]
fn a_process_that_is_alone_has_no_launch() {
    let cases = [
        "",
        "RANK=1",
        "WORLD_SIZE=2",
        "OMPI_COMM_WORLD_RANK= OMPI_COMM_WORLD_SIZE=",
        "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1",
        "RANK=0 WORLD_SIZE=1",
        // A script of `sbatch -n 2`, a shell of `salloc -n 2`, and one that `salloc` starts as a step.
        "SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=2",
        "SLURM_JOB_ID=7 SLURM_NTASKS=2",
        "SLURM_JOB_ID=7 SLURM_NTASKS=2 SLURM_STEP_ID=4294967290 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1",
    ];
    for variables in cases {
        assert_eq!(find(variables), Ok(None), "{variables}");
    }
}

#[test]
fn a_wrong_variable_is_named_with_its_value() {
    let cases = [
        ("PMI_RANK=2 PMI_SIZE=2", "`PMI_RANK` is `2`"),
        ("PMI_RANK=-1 PMI_SIZE=2", "`PMI_RANK` is `-1`"),
        ("PMI_RANK=x PMI_SIZE=2", "`PMI_RANK` is `x`"),
        ("PMI_RANK=0 PMI_SIZE=0", "`PMI_SIZE` is `0`"),
        ("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4097", "`OMPI_COMM_WORLD_SIZE` is `4097`"),
        ("OMPI_COMM_WORLD_RANK=0", "`OMPI_COMM_WORLD_SIZE` is not set"),
        ("OMPI_COMM_WORLD_SIZE=2", "`OMPI_COMM_WORLD_RANK` is not set"),
        ("RANK=0 WORLD_SIZE=2 MASTER_PORT=1", "`MASTER_ADDR` is not set"),
        ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a", "`MASTER_PORT` is not set"),
        ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=70000", "`MASTER_PORT` is `70000`"),
        ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=0", "`MASTER_PORT` is `0`"),
        ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=65535 TORCHELASTIC_RUN_ID=a", "`MASTER_PORT` is `65535`"),
    ];
    for (variables, message) in cases {
        let error = find(variables).unwrap_err().to_string();
        assert_eq!(error, format!("the environment variable {message}"), "{variables}");
    }
}

#[test]
fn the_port_after_that_of_torchrun_is_used() {
    let port = |variables: &str| find(variables).unwrap().unwrap().address;
    assert_eq!(port(TORCH), Some(("node1".to_owned(), 29500)));
    assert_eq!(port(&format!("{TORCH} TORCHELASTIC_RUN_ID=a")), Some(("node1".to_owned(), 29501)));
}
