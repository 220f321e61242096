use super::*;
use crate::engine::bare;

const SMALL: &str = r#"(component
    (core module $m (func (export "f") (result i32) (i32.const 7)))
    (core instance $i (instantiate $m))
    (func (export "f") (result u32) (canon lift (core func $i "f"))))"#;

fn compiler(folder: &std::path::Path) -> Compiler {
    Compiler::new(Compiling { cache: Some(folder.join("compiled")), ..Compiling::default() })
}

/// What the component's function gives.
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
        let engine = bare().unwrap();
        let component = compiler(place.path()).component(&engine, &bytes, "small", false).unwrap();
        assert_eq!(answer(&engine, &component), 7);
    }
    let kept = std::fs::read_dir(place.path().join("compiled")).unwrap().count();
    assert_eq!(kept, 1, "the same component is kept more than once");
}

#[test]
fn the_key_is_that_of_the_component_and_of_the_settings() {
    let mut other = wasmtime::Config::new();
    other.wasm_component_model(true).cranelift_opt_level(wasmtime::OptLevel::None);
    let (ours, other) = (bare().unwrap(), wasmtime::Engine::new(&other).unwrap());

    assert_eq!(Key::of(&ours, b"a"), Key::of(&bare().unwrap(), b"a"));
    assert_ne!(Key::of(&ours, b"a"), Key::of(&ours, b"b"));
    assert_ne!(Key::of(&ours, b"a"), Key::of(&other, b"a"));
}

#[test]
fn an_entry_that_seems_whole_and_is_no_code_is_removed_and_made_anew() {
    let (place, bytes) = (tempfile::tempdir().unwrap(), wat::parse_str(SMALL).unwrap());
    let engine = bare().unwrap();
    let compiler = compiler(place.path());
    let key = Key::of(&engine, &bytes);
    let cache = compiler.cache.as_ref().unwrap();
    cache.put(&key, &Trusted::own(b"\x7fELF and nothing of an object".to_vec()));
    let component = compiler.component(&engine, &bytes, "small", false).unwrap();

    assert_eq!(answer(&engine, &component), 7);
    assert!(cache.get(&key).unwrap().load(&engine).is_ok());
}

#[test]
fn code_compiled_beforehand_is_no_component() {
    let engine = bare().unwrap();
    let code = engine.precompile_component(&wat::parse_str(SMALL).unwrap()).unwrap();
    let refusal = Compiler::default().component(&engine, &code, "code", false).unwrap_err();
    assert!(matches!(refusal, Error::Malformed { .. }), "{refusal:?}");

    let engine = crate::Engine::new().unwrap();
    let refusal = engine.admit(&code, "code", &crate::Grants::default(), &crate::Limits::default()).err().unwrap();
    assert!(matches!(refusal, Error::Malformed { .. }), "{refusal:?}");
}

/// What compiling comes to when a shell script stands for the child.
fn aside(script: &str, seconds: f64) -> CompileStop {
    let program = Program::at("/bin/sh").with("-c").with(script);
    let limits = CompileLimits { seconds, bytes: 1 << 30 };
    let compiler = Compiler::new(Compiling { cache: None, aside: Some(program), limits });
    // Larger than a pipe holds, so that a child that does not read is met as well.
    let bytes = vec![0; 1 << 20];
    match compiler.component(&bare().unwrap(), &bytes, "strange", true).unwrap_err() {
        Error::NotCompiled { stop, .. } => stop,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_child_that_takes_too_long_or_dies_is_told_by_how_it_ended() {
    assert_eq!(aside("exec sleep 60", 0.2), CompileStop::Time(0.2));
    assert_eq!(aside("cat >/dev/null; kill -XCPU $$", 20.0), CompileStop::Time(20.0));
    let words = "echo 'memory allocation of 64 bytes failed' >&2; kill -ABRT $$";
    assert_eq!(aside(words, 20.0), CompileStop::Memory(1 << 30));
    assert_eq!(aside("kill -SEGV $$", 20.0), CompileStop::Died("crashed (signal 11, SIGSEGV)".into()));
    assert_eq!(aside("exit 0", 20.0), CompileStop::Died("ended before it was done".into()));
}

#[test]
fn code_of_which_not_all_came_is_not_loaded() {
    let digest: Vec<String> = vec!["0".into(); 32];
    for length in [3, 4, 5] {
        let line = format!(r#"{{"Compiled":{{"bytes":{length},"digest":[{}]}}}}"#, digest.join(","));
        let stop = aside(&format!("echo '{line}'; printf 1234"), 20.0);
        assert_eq!(stop, CompileStop::Died("ended before it was done".into()));
    }
}
