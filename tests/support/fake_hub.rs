//! A hub on the loopback interface.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The only commit of its repositories.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Serves one repository, as the model and as the data set `acme/tiny`, and records the paths that are requested.
pub(crate) struct Server {
    pub(crate) address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) fn start(files: &[(&str, &[u8])]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let files: HashMap<String, Vec<u8>> =
            files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (files, seen) = (files.clone(), Arc::clone(&seen));
                std::thread::spawn(move || answer(stream, &files, &seen));
            }
        });
        Self { address, asked }
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// Answers one request, records its path in `seen`, and closes the connection.
fn answer(mut stream: TcpStream, files: &HashMap<String, Vec<u8>>, seen: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    let mut range = None;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        let line = line.to_ascii_lowercase();
        if let Some(bytes) = line.strip_prefix("range: bytes=") {
            let (from, to) = bytes.trim().split_once('-').unwrap();
            range = Some((from.parse::<usize>().unwrap(), to.parse::<usize>().ok()));
        }
    }
    let path = first.split(' ').nth(1).unwrap().to_owned();
    seen.lock().unwrap().push(path.clone());
    let found = match path.split_once(&format!("/resolve/{COMMIT}/")) {
        Some((_, file)) => files.get(file).cloned(),
        None if is_listing(&path) => {
            let siblings: Vec<_> = files.keys().map(|file| serde_json::json!({"rfilename": file})).collect();
            Some(serde_json::json!({"sha": COMMIT, "siblings": siblings}).to_string().into_bytes())
        }
        None => None,
    };
    let Some(body) = found else {
        let status = if path.contains("/gated/") { "401 Unauthorized" } else { "404 Not Found" };
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
        return;
    };
    let (status, from, to) = match range {
        Some((from, to)) => (206, from, to.map_or(body.len(), |to| (to + 1).min(body.len()))),
        None => (200, 0, body.len()),
    };
    let total = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} OK\r\nETag: \"{}\"\r\nX-Repo-Commit: {COMMIT}\r\nContent-Range: bytes {from}-{}/{total}\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        path.replace(['/', '.'], "-"),
        to.saturating_sub(1),
        to - from,
    )
    .unwrap();
    stream.write_all(&body[from..to]).unwrap();
}

/// Whether the list of files of the repository is asked for, by its branch or its commit.
fn is_listing(path: &str) -> bool {
    let revision = path.strip_prefix("/api/").and_then(|path| path.split_once("/acme/tiny/revision/"));
    revision
        .is_some_and(|(kind, revision)| ["models", "datasets"].contains(&kind) && ["main", COMMIT].contains(&revision))
}
