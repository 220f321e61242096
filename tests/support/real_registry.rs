//! Debian's `docker-registry` as a process of its own on a free port of loopback, ended with the test.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::absent::require;

const PROGRAM: &str = "docker-registry";

/// The name `me` with the password `secret`, as `htpasswd -B` writes it.
const LOGIN: &str = "me:$2b$05$aaaaaaaaaaaaaaaaaaaaaufF5ln6hkSmsXQlUal7F4e6KigLYzXK6\n";

/// A registry that runs.
pub(crate) struct Registry {
    process: Child,
    port: u16,
    /// What it holds, until the end.
    data: TempDir,
}

impl Registry {
    /// Starts one with more lines of configuration. Like the others, fails as absent if the program is.
    pub(crate) fn start(more: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), "127.0.0.1", "", more)
    }

    /// Starts one that takes the name `me` with the password `secret`.
    pub(crate) fn with_login() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("logins");
        std::fs::write(&file, LOGIN).unwrap();
        let more = format!("auth: {{htpasswd: {{realm: here, path: '{}'}}}}\n", file.display());
        Self::start_in(folder, "127.0.0.1", "", &more)
    }

    /// Starts one that speaks TLS at `0.0.0.0`, with its certificate.
    pub(crate) fn with_certificate() -> (Self, PathBuf) {
        require("openssl", "version");
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("certificate.pem"), folder.path().join("key.pem"));
        issue(&certificate, &key);
        let tls = format!(", tls: {{certificate: '{}', key: '{}'}}", certificate.display(), key.display());
        (Self::start_in(folder, "0.0.0.0", &tls, ""), certificate)
    }

    /// Host and port.
    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// A file of what it holds.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.data.path().join("data/docker/registry/v2").join(name)
    }

    fn start_in(folder: TempDir, host: &str, http: &str, more: &str) -> Self {
        require(PROGRAM, "--version");
        // Free a moment ago: another one may take it, and then the registry ends at once.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let text = format!(
                "version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\n\
                 storage: {{filesystem: {{rootdirectory: '{}'}}}}\n\
                 http: {{addr: '{host}:{port}'{http}}}\n{more}",
                folder.path().join("data").display(),
            );
            let file = folder.path().join("config.yml");
            std::fs::write(&file, text).unwrap();
            let mut command = Command::new(PROGRAM);
            command.args([Path::new("serve"), &file]).stdout(Stdio::null()).stderr(Stdio::null());
            let mut process = command.spawn().unwrap();
            if answers(&mut process, port) {
                return Self { process, port, data: folder };
            }
            process.kill().ok();
            process.wait().unwrap();
        }
        panic!("`{PROGRAM}` does not start; its configuration was in {}", folder.path().display());
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // This process alone, by its number.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Whether a process listens before it ends or a quarter of a minute is over.
fn answers(process: &mut Child, port: u16) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(15) && process.try_wait().unwrap().is_none() {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

/// A certificate for this machine, signed by itself.
fn issue(certificate: &Path, key: &Path) {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]);
    command.args(["-subj", "/CN=tunebox test", "-addext", "subjectAltName=IP:0.0.0.0,IP:127.0.0.1"]);
    // As a leaf: a certificate of an authority is refused where a server's is expected.
    command.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    command.arg("-keyout").arg(key).arg("-out").arg(certificate);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
