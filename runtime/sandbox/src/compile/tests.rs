use tunebox_foundation::explain::{Explain as _, Explanation};

use super::*;
use crate::engine::wasmtime_engine;

const SMALL: &str = r#"(component
    (core module $m (func (export "f") (result i32) (i32.const 7)))
    (core instance $i (instantiate $m))
    (func (export "f") (result u32) (canon lift (core func $i "f"))))"#;

fn compiler(folder: &std::path::Path) -> Compiler {
    Compiler::new(Compiling { cache: Some(folder.join("compiled")), ..Compiling::default() })
}

/// Loads a component from the cache, or compiles it.
fn component(compiler: &Compiler, engine: &wasmtime::Engine, bytes: &[u8]) -> Component {
    compiler.load(engine, bytes).unwrap_or_else(|| compiler.compile(engine, bytes, "small", false).unwrap())
}

/// Calls the component's function `f` and returns its result.
fn answer(engine: &wasmtime::Engine, component: &Component) -> u32 {
    let mut store = wasmtime::Store::new(engine, ());
    store.set_epoch_deadline(1);
    let instance = wasmtime::component::Linker::new(engine).instantiate(&mut store, component).unwrap();
    let function = instance.get_typed_func::<(), (u32,)>(&mut store, "f").unwrap();
    function.call(&mut store, ()).unwrap().0
}

#[test]
fn code_from_the_cache_runs_as_the_component_does_in_every_engine_of_the_same_settings() {
    let (place, bytes) = (tempfile::tempdir().unwrap(), wat::parse_str(SMALL).unwrap());
    for _ in 0..3 {
        let engine = wasmtime_engine(CodeOptions::default()).unwrap();
        let component = component(&compiler(place.path()), &engine, &bytes);
        assert_eq!(answer(&engine, &component), 7);
    }
    let kept = std::fs::read_dir(place.path().join("compiled")).unwrap().count();
    assert_eq!(kept, 1, "the same component is kept more than once");
}

#[test]
fn the_key_is_that_of_the_component_and_of_the_settings() {
    let mut other = wasmtime::Config::new();
    other.wasm_component_model(true).cranelift_opt_level(wasmtime::OptLevel::None);
    let (ours, other) = (wasmtime_engine(CodeOptions::default()).unwrap(), wasmtime::Engine::new(&other).unwrap());

    assert_eq!(cache_key(&ours, b"a"), cache_key(&wasmtime_engine(CodeOptions::default()).unwrap(), b"a"));
    assert_ne!(cache_key(&ours, b"a"), cache_key(&ours, b"b"));
    assert_ne!(cache_key(&ours, b"a"), cache_key(&other, b"a"));
    let counting = wasmtime_engine(CodeOptions { count_instructions: true, ..CodeOptions::default() }).unwrap();
    assert_ne!(cache_key(&ours, b"a"), cache_key(&counting, b"a"));
}

#[test]
fn an_entry_that_seems_whole_and_is_no_code_is_removed_and_made_anew() {
    let (place, bytes) = (tempfile::tempdir().unwrap(), wat::parse_str(SMALL).unwrap());
    let engine = wasmtime_engine(CodeOptions::default()).unwrap();
    let compiler = compiler(place.path());
    let key = cache_key(&engine, &bytes);
    let cache = compiler.cache.as_ref().unwrap().as_ref().unwrap();
    cache.put(&key, b"\x7fELF and nothing of an object");
    let component = component(&compiler, &engine, &bytes);

    assert_eq!(answer(&engine, &component), 7);
    assert!(cache.get(&key).map(PrecompiledCode::from_own_code).unwrap().load(&engine).is_ok());
}

#[test]
fn code_compiled_beforehand_is_no_component() {
    let engine = wasmtime_engine(CodeOptions::default()).unwrap();
    let code = engine.precompile_component(&wat::parse_str(SMALL).unwrap()).unwrap();
    let refusal = Compiler::default().compile(&engine, &code, "code", false).unwrap_err();
    assert!(matches!(refusal, Error::Malformed { .. }), "{refusal:?}");

    let engine = crate::Engine::new().unwrap();
    let refusal = engine.admit(&code, "code", &crate::Grants::default(), &crate::Limits::default()).err().unwrap();
    assert!(matches!(refusal, Error::Malformed { .. }), "{refusal:?}");
}

/// Compiles with a shell script in place of the child, and returns the error.
fn compile_by(script: &str, seconds: f64) -> Explanation {
    let program = Program::at("/bin/sh").with("-c").with(script);
    let limits = Limits { compile_seconds: seconds, compile_memory: 1 << 30, ..Limits::default() };
    let compiler = Compiler::new(Compiling { program: Some(program), limits, ..Compiling::default() });
    // Larger than a pipe holds, so that a child that does not read is met as well.
    let bytes = vec![0; 1 << 20];
    compiler
        .compile(&wasmtime_engine(CodeOptions::default()).unwrap(), &bytes, "strange", true)
        .unwrap_err()
        .explanation()
}

fn why(script: &str) -> String {
    compile_by(script, 20.0).why.unwrap()
}

#[test]
fn a_child_that_takes_too_long_or_dies_is_told_by_how_it_ended() {
    for (script, seconds, more) in [("exec sleep 60", 0.2, "1"), ("cat >/dev/null; kill -XCPU $$", 20.0, "80")] {
        let error = compile_by(script, seconds);
        assert_eq!(error.what, "`strange` takes too long to compile");
        assert_eq!(error.location.unwrap(), format!("more than {seconds} s, ended before anything of it ran"));
        assert_eq!(error.hint.unwrap(), format!("if you trust it, `--set limits.compile-seconds={more}`"));
    }
    let error = compile_by("echo 'memory allocation of 64 bytes failed' >&2; kill -ABRT $$", 20.0);
    assert_eq!(error.what, "`strange` takes too much memory to compile");
    assert_eq!(error.location.unwrap(), "more than 1.0 GiB, ended before anything of it ran");
    assert_eq!(why("kill -SEGV $$"), "the process that compiled it crashed (signal 11, SIGSEGV)");
    assert_eq!(why("exit 0"), "the process that compiled it ended before it was done");
}

#[test]
fn code_of_which_not_all_came_is_not_loaded() {
    let digest: Vec<String> = vec!["0".into(); 32];
    for length in [3, 4, 5] {
        let line = format!(r#"{{"Compiled":{{"bytes":{length},"digest":[{}]}}}}"#, digest.join(","));
        let why = why(&format!("echo '{line}'; printf 1234"));
        assert_eq!(why, "the process that compiled it ended before it was done");
    }
}

#[test]
fn types_are_checked_before_a_component_is_compiled_and_not_again_when_its_code_is_loaded() {
    let ill_typed = r#"(component
        (core module $m (func (export "f") (result i32) (i64.const 7)))
        (core instance $i (instantiate $m))
        (func $f (result u32) (canon lift (core func $i "f")))
        (instance $e (export "init" (func $f)))
        (export "tunebox:method/verify@0.2.0" (instance $e)))"#;
    let (place, bytes) = (tempfile::tempdir().unwrap(), wat::parse_str(ill_typed).unwrap());
    let settings = Compiling { cache: Some(place.path().join("compiled")), ..Compiling::default() };
    let engine = crate::Engine::with(settings).unwrap();
    let admit = || engine.admit_verifier(&bytes, "judge", &Limits::default()).err().unwrap();
    assert!(matches!(admit(), Error::Malformed { .. }), "{:?}", admit());

    // The code of another component stands for what was compiled from this one.
    let bare = wasmtime_engine(CodeOptions::default()).unwrap();
    let compiler = compiler(place.path());
    let cache = compiler.cache.as_ref().unwrap().as_ref().unwrap();
    cache.put(&cache_key(&bare, &bytes), &bare.precompile_component(&wat::parse_str(SMALL).unwrap()).unwrap());
    assert!(matches!(admit(), Error::Mismatch { .. }), "{:?}", admit());
}
