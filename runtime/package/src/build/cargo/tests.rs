//! How cargo is called, and how a lock file that is behind is handled.

use tunebox_foundation::explain::Explain as _;

use super::*;

#[test]
fn a_build_without_a_network_tells_cargo_so() {
    let toolchain = Toolchain {
        cargo: "cargo".into(),
        rustc: "rustc".into(),
        release: String::new(),
        library: Library::Installed,
        sysroot: PathBuf::new(),
        linker: None,
    };
    let told = |offline: bool| {
        let options = Options { offline, ..Options::default() };
        let job = Job { folder: Path::new("."), toolchain: &toolchain, options: &options };
        let cargo = job.cargo_command().unwrap();
        cargo.get_envs().any(|(name, value)| name == "CARGO_NET_OFFLINE" && value == Some("true".as_ref()))
    };
    assert_eq!([told(true), told(false)], [true, false]);
}

#[test]
fn the_lock_takes_up_what_is_here_and_names_what_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let manifest = |name: &str, more: &str| {
        format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{more}")
    };
    // Cargo writes the lock, and then compiles nothing of a crate for a later compiler.
    write("calmer/Cargo.toml", &manifest("calmer", "rust-version = \"1.999\"\n"));
    write("calmer/src/lib.rs", "");
    write("src/lib.rs", "");
    write("Cargo.lock", "version = 4\n\n[[package]]\nname = \"calm\"\nversion = \"0.1.0\"\n");
    let (toolchain, options) = (crate::toolchain::find().unwrap(), Options { offline: true, ..Options::default() });
    let built = |dependency: &str| {
        let more = format!("[lib]\ncrate-type = [\"cdylib\"]\n[dependencies]\n{dependency}\n[workspace]\n");
        write("Cargo.toml", &manifest("calm", &more).replace("0.1.0", "0.2.0"));
        build(folder.path(), &toolchain, &options, &mut |_| {}).unwrap_err()
    };
    let error = built("calmer = { path = \"calmer\" }").explanation();
    assert!(error.why.is_some_and(|why| why.contains("1.999")));
    let lock = std::fs::read_to_string(folder.path().join("Cargo.lock")).unwrap();
    assert!(lock.contains("name = \"calmer\"") && lock.contains("name = \"calm\"\nversion = \"0.2.0\""), "{lock}");
    let error = built("calmer-unpublished = \"1\"");
    assert_eq!(error.to_string(), "the dependency `calmer-unpublished` cannot be fetched");
}
