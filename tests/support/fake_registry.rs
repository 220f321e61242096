//! A registry on loopback that holds what it is given, and fails as it is told to.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tunebox_package::digest::sha256;

/// What an encrypted connection begins with.
const HANDSHAKE: u8 = 0x16;

/// What was asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// With the query.
    pub(crate) path: String,
    /// By lower-case names.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    /// Whether this is a request of that method, for a path with that part in it.
    pub(crate) fn is(&self, method: &str, part: &str) -> bool {
        self.method == method && self.path.contains(part)
    }
}

/// What is answered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// How many bytes of the body are sent before the connection ends.
    pub(crate) cut: Option<usize>,
}

impl Answer {
    pub(crate) fn of(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, body: body.into(), ..Self::default() }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// What comes before the ordinary answer.
type Rule = Box<dyn Fn(&Asked) -> Option<Answer> + Send + Sync>;

#[derive(Default)]
struct State {
    /// By digest.
    blobs: BTreeMap<String, Vec<u8>>,
    /// Media type and bytes by `repository:tag`.
    manifests: BTreeMap<String, (String, Vec<u8>)>,
    asked: Vec<Asked>,
}

/// A registry; it ends when it is dropped.
pub(crate) struct FakeRegistry {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FakeRegistry {
    /// One that does all it should.
    pub(crate) fn start() -> Self {
        Self::with(|_| None)
    }

    /// One that answers by a rule first.
    pub(crate) fn with(rule: impl Fn(&Asked) -> Option<Answer> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, state) = (listener.local_addr().unwrap(), Arc::<Mutex<State>>::default());
        let rule: Rule = Box::new(rule);
        let (ended, rule) = (Arc::<AtomicBool>::default(), Arc::new(rule));
        let (seen, end) = (Arc::clone(&state), Arc::clone(&ended));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                let (state, rule) = (Arc::clone(&seen), Arc::clone(&rule));
                let serve = move || stream.and_then(|stream| serve(stream, &state, &**rule)).ok();
                std::thread::spawn(serve);
            }
        });
        Self { address, state, ended, thread: Some(thread) }
    }

    /// Host and port.
    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Everything that was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.state.lock().unwrap().asked.clone()
    }

    /// Keeps a blob and gives its digest.
    pub(crate) fn keep(&self, bytes: &[u8]) -> String {
        let digest = format!("sha256:{}", sha256(bytes));
        self.state.lock().unwrap().blobs.insert(digest.clone(), bytes.to_vec());
        digest
    }

    /// Keeps a manifest under `repository:tag`.
    pub(crate) fn name(&self, name: &str, media_type: &str, bytes: &[u8]) {
        self.state.lock().unwrap().manifests.insert(name.to_owned(), (media_type.to_owned(), bytes.to_vec()));
    }
}

impl Drop for FakeRegistry {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Whoever waits for a connection gets one.
        TcpStream::connect(self.address).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// One request, one answer.
fn serve(
    mut stream: TcpStream,
    state: &Mutex<State>,
    rule: &(dyn Fn(&Asked) -> Option<Answer> + Send + Sync),
) -> std::io::Result<()> {
    let mut first = [0];
    stream.peek(&mut first)?;
    if first[0] == HANDSHAKE {
        // What a server of plain HTTP makes of it.
        let _ = stream.read(&mut [0; 16 << 10])?;
        return stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    }
    let asked = read(&mut BufReader::new(&stream))?;
    state.lock().unwrap().asked.push(asked.clone());
    let answer = rule(&asked).unwrap_or_else(|| ordinary(&asked, &mut state.lock().unwrap()));
    write(&stream, &asked, &answer)?;
    stream.shutdown(Shutdown::Write)
}

fn read(stream: &mut impl BufRead) -> std::io::Result<Asked> {
    let mut line = || {
        let mut line = String::new();
        stream.read_line(&mut line).map(|_| line.trim_end().to_owned())
    };
    let first = line()?;
    let mut words = first.split(' ');
    let mut word = || words.next().unwrap_or_default().to_owned();
    let mut asked = Asked { method: word(), path: word(), ..Asked::default() };
    loop {
        let line = line()?;
        let Some((name, value)) = line.split_once(':') else { break };
        asked.headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = asked.headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    assert!(!asked.headers.contains_key("transfer-encoding"), "registries want to know how much comes");
    asked.body.resize(length, 0);
    stream.read_exact(&mut asked.body)?;
    Ok(asked)
}

fn write(mut stream: &TcpStream, asked: &Asked, answer: &Answer) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} Answer\r\nConnection: close\r\n", answer.status);
    answer.headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    if !answer.headers.iter().any(|(name, _)| *name == "Content-Length") {
        head.push_str(&format!("Content-Length: {}\r\n", answer.body.len()));
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    if asked.method != "HEAD" {
        stream.write_all(&answer.body[..answer.cut.unwrap_or(answer.body.len())])?;
    }
    stream.flush()
}

/// What a registry answers that has no troubles.
fn ordinary(asked: &Asked, state: &mut State) -> Answer {
    let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
    let Some(rest) = path.strip_prefix("/v2/") else { return Answer::of(404, "") };
    for part in ["/manifests/", "/blobs/uploads/", "/blobs/", "/tags/"] {
        if let Some((repository, name)) = rest.split_once(part) {
            return match part {
                "/manifests/" => manifest(asked, state, &format!("{repository}:{name}")),
                "/blobs/uploads/" => upload(asked, state, repository, query),
                "/blobs/" => state.blobs.get(name).map_or(Answer::of(404, ""), |blob| Answer::of(200, blob.clone())),
                _ => tags(state, repository),
            };
        }
    }
    Answer::of(404, "")
}

fn manifest(asked: &Asked, state: &mut State, name: &str) -> Answer {
    if asked.method == "PUT" {
        let media_type = asked.headers.get("content-type").cloned().unwrap_or_default();
        state.manifests.insert(name.to_owned(), (media_type, asked.body.clone()));
        return Answer::of(201, "").with("Docker-Content-Digest", format!("sha256:{}", sha256(&asked.body)));
    }
    match state.manifests.get(name) {
        Some((media_type, bytes)) => Answer::of(200, bytes.clone())
            .with("Content-Type", media_type)
            .with("Docker-Content-Digest", format!("sha256:{}", sha256(bytes))),
        None => Answer::of(404, r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#),
    }
}

fn upload(asked: &Asked, state: &mut State, repository: &str, query: &str) -> Answer {
    if asked.method == "POST" {
        return Answer::of(202, "").with("Location", format!("/v2/{repository}/blobs/uploads/1?state=x%2Fy"));
    }
    let digest = format!("sha256:{}", sha256(&asked.body));
    if !query.split('&').any(|part| part == format!("digest={}", digest.replace(':', "%3A"))) {
        return Answer::of(400, r#"{"errors":[{"code":"DIGEST_INVALID"}]}"#);
    }
    state.blobs.insert(digest, asked.body.clone());
    Answer::of(201, "")
}

fn tags(state: &State, repository: &str) -> Answer {
    let prefix = format!("{repository}:");
    let tags: Vec<_> = state.manifests.keys().filter_map(|name| name.strip_prefix(&prefix)).collect();
    Answer::of(200, serde_json::json!({ "name": repository, "tags": tags }).to_string())
}
