//! The real compiler on all kernels. Needs NVRTC (`pip install nvidia-cuda-nvrtc` in an active environment), and
//! neither a driver nor a GPU.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use candle_core::DType;
use rayon::prelude::*;

use super::*;
use crate::accelerator::argument::Build;
use crate::accelerator::cuda::library::folders;
use crate::accelerator::kernel::Module;
use crate::accelerator::sources::Language;

/// Compute capabilities of A100, RTX 40, H100 and B200.
const CAPABILITIES: [u32; 4] = [80, 89, 90, 100];
/// The version of NVRTC whose registers are recorded.
const RECORDED: (i32, i32) = (13, 0);

/// All variants of a module that are compiled here: (activation type, head size, group size). A module that does not
/// depend on head size or group size gets only one of it.
fn builds(module: Module) -> Vec<Build> {
    let heads: &[u32] = match module {
        Module::Attention => &[64, 80, 96, 128, 160, 256],
        Module::Cached => &[64, 128, 256],
        _ => &[128],
    };
    let groups: &[u32] = if module == Module::Cached { &[1, 4] } else { &[4] };
    let types = [DType::F32, DType::BF16, DType::F16];
    let of_type = |act| {
        heads.iter().flat_map(move |head| groups.iter().map(move |group| Build { act, head: *head, group: *group }))
    };
    types.into_iter().flat_map(of_type).collect()
}

/// The registers of a thread and the bytes that it spills, as in "255+8", of each kernel in a log of
/// `--ptxas-options=-v`.
fn registers(log: &str) -> Vec<(String, String)> {
    let kernels = log.split("Compiling entry function '").skip(1);
    let number = |text: &str, before: &str, after: &str| -> Option<u32> {
        let text = if before.is_empty() { text } else { text.split_once(before)?.1 };
        text.split_once(after)?.0.rsplit([' ', ',']).next()?.parse().ok()
    };
    let row = |text: &str| {
        let spilled = number(text, "", " bytes spill stores")?;
        let used = number(text, "Used ", " registers")?;
        let spill = if spilled > 0 { format!("+{spilled}") } else { String::new() };
        Some((text.split_once('\'')?.0.to_owned(), format!("{used}{spill}")))
    };
    kernels.filter_map(row).collect()
}

#[test]
#[ignore = "needs nvrtc"]
fn every_kernel_compiles_everywhere_in_the_registers_that_are_recorded() {
    sys::COMPILER.open(&folders()).expect("absent `nvrtc`");
    let variants: Vec<(Module, Build)> = Module::ALL
        .into_iter()
        .flat_map(|module| builds(module).into_iter().map(move |build| (module, build)))
        .collect();
    let tasks: Vec<(Module, Build, u32)> = variants
        .iter()
        .flat_map(|(module, build)| CAPABILITIES.map(|capability| (*module, *build, capability)))
        // The types of 16 bits share their kernels: one capability shows that f16 compiles.
        .filter(|(_, build, capability)| build.act != DType::F16 || *capability == CAPABILITIES[0])
        .collect();
    let rows = tasks.into_par_iter().flat_map_iter(|(module, build, capability)| {
        let source = Language::Cuda.source(module, build).unwrap();
        let options = [&options(capability)[..], &["--ptxas-options=-v".to_owned()]].concat();
        let program = compile_program(&source, &options);
        let program = program.unwrap_or_else(|why| panic!("{module:?} {build:?} sm_{capability}: {why}"));
        let found = registers(&program.log());
        assert!(!found.is_empty(), "{module:?} {build:?} sm_{capability}: {}", program.log());
        let Build { act, head, group } = build;
        let variant = match module {
            Module::Attention => format!("{} of {head}", act.as_str()),
            Module::Cached => format!("{} of {head}, group {group}", act.as_str()),
            _ => act.as_str().to_owned(),
        };
        found.into_iter().map(move |(kernel, used)| ((format!("{kernel} {variant}"), capability), used))
    });
    let rows: BTreeMap<(String, u32), String> = rows.collect();
    // Another version compiles all kernels as well, but in other registers.
    let version = version().unwrap_or_default();
    assert!(version == RECORDED, "absent `nvrtc`: registers are recorded for {RECORDED:?}, this is {version:?}");
    assert_recorded(&page(&rows));
}

/// One line for each kernel and variant, with a column for each compute capability.
fn page(rows: &BTreeMap<(String, u32), String>) -> String {
    let mut page =
        String::from("# Registers of a thread, and + the bytes that it spills, by NVRTC 13.0; BLESS=1 rewrites it.\n");
    write!(page, "{:<46}", "kernel").unwrap();
    CAPABILITIES.iter().for_each(|capability| write!(page, "{:>9}", format!("sm_{capability}")).unwrap());
    let mut last = "";
    for ((kernel, _), used) in rows {
        if kernel != last {
            write!(page, "\n{kernel:<46}").unwrap();
            last = kernel;
        }
        write!(page, "{used:>9}").unwrap();
    }
    page + "\n"
}

/// Compares the page with the recorded one, or writes it under `BLESS=1`.
fn assert_recorded(page: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/accelerator/kernels/cuda/registers.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, page).unwrap();
    }
    let recorded = std::fs::read_to_string(&file).unwrap_or_default();
    let apart = recorded.lines().zip(page.lines()).find(|(wanted, found)| wanted != found);
    assert!(recorded == page, "{} is out of date: {apart:?}", file.display());
}

#[test]
#[ignore = "needs nvrtc"]
fn what_does_not_compile_comes_with_the_log() {
    sys::COMPILER.open(&folders()).expect("absent `nvrtc`");
    let why = compile("__global__ void broken( {", &options(80)).unwrap_err();
    assert!(why.contains("tunebox.cu(1)"), "{why}");
}
