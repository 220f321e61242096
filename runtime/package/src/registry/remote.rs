//! The requests to a registry that download a package, and those that upload one.

use std::io::{ErrorKind, Read};

use serde_json::Value;
use ureq::Body;
use ureq::http::header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use ureq::http::{HeaderName, Method, Response, StatusCode};

use super::connection::{Connection, HttpRequest, Watched};
use super::error::{no_version, not_found, truncated};
use super::location::Location;
use super::{Progress, check_existing_version};
use crate::Error;
use crate::artifact::document::{Descriptor, digest_of};
use crate::artifact::{Artifact, Documents, LARGEST_DOCUMENT, MANIFEST, Parts, check_size, error};
use crate::signature::signer_of;
use crate::store::compare_versions;
use tunebox_foundation::nearest::nearest;

/// The media types of manifests to accept: that of packages, and those of container images, so that an error can say
/// that the artifact is one.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
                         application/vnd.docker.distribution.manifest.v2+json, \
                         application/vnd.docker.distribution.manifest.list.v2+json";
const BINARY: &str = "application/octet-stream";
const MANIFEST_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// Downloads and checks a package, and returns it with the digest of its OCI manifest. Errors: no version is named,
/// there is no such version (the error lists those that exist), or a part is not what the manifest names.
pub(super) fn pull(connection: &mut Connection<'_>, progress: &mut Progress<'_>) -> Result<(Artifact, String), Error> {
    let location = connection.location;
    let Some(tag) = location.tag() else {
        let highest = list_tags(connection).pop().map(|tag| format!("{}:{tag}", location.source()));
        return Err(no_version(&location.to_string(), highest));
    };
    let Some((manifest, media_type)) = download_manifest(connection, &tag)? else {
        let there = list_tags(connection);
        let nearest = nearest(&tag, there.iter().map(String::as_str));
        return Err(not_found(&location.to_string(), &location.source(), &there, nearest));
    };
    let parts = Parts::read(&manifest, media_type.as_deref()).map_err(|error| connection.locate(error))?;

    let configuration = download_blob(connection, "configuration", &parts.configuration, &mut |_| {})?;
    let (title, size) = (progress_title(location), parts.layer.size);
    progress(&title, 0, size);
    let wasm = download_blob(connection, "package", &parts.layer, &mut |done| progress(&title, done, size))?;
    let artifact = parts.assemble(&configuration, wasm).map_err(|error| connection.locate(error))?;
    Ok((artifact, digest_of(&manifest)))
}

/// Uploads component, configuration and manifest, and returns the manifest's digest. Errors, before anything is
/// uploaded: the version exists with other bytes, or with a signature that this package lacks.
pub(super) fn push(
    connection: &mut Connection<'_>,
    artifact: &Artifact,
    progress: &mut Progress<'_>,
) -> Result<String, Error> {
    let location = connection.location;
    let documents = artifact.manifest()?;
    let tag = location.tag().unwrap_or_default();
    if let Some((there, media_type)) = download_manifest(connection, &tag)? {
        let parts =
            Parts::read(&there, media_type.as_deref()).ok().filter(|parts| parts.layer.digest == documents.layer);
        let signature = parts.as_ref().and_then(|parts| parts.signature.as_deref());
        let signer = signer_of(&artifact.wasm, signature);
        check_existing_version(&location.to_string(), artifact, parts.is_some(), signer.as_deref())?;
    }
    let (title, size) = (progress_title(location), artifact.wasm.len() as u64);
    progress(&title, 0, size);
    upload_blob(connection, &artifact.wasm, &mut |done| progress(&title, done, size))?;
    upload_blob(connection, &documents.configuration, &mut |_| {})?;
    upload_manifest(connection, &tag, &documents)?;
    Ok(documents.digest)
}

/// Uploads the manifest under a tag, which makes the package visible. Errors: the registry rejects it, or reports
/// another digest for the manifest.
fn upload_manifest(connection: &mut Connection<'_>, tag: &str, documents: &Documents) -> Result<(), Error> {
    let address = connection.address(&format!("manifests/{tag}"));
    let request = HttpRequest {
        body: Some((documents.manifest.as_slice(), MANIFEST)),
        ..HttpRequest::without_body(Method::PUT, address)
    };
    let response = connection.send(request, &[StatusCode::CREATED, StatusCode::OK])?;
    if let Some(found) = header_value(&response, &MANIFEST_DIGEST).filter(|found| *found != documents.digest) {
        return Err(connection.locate(error::wrong_digest("manifest", &documents.digest, &found)));
    }
    Ok(())
}

/// The bytes of a manifest, and the `Content-Type` that it was served with.
type Served = (Vec<u8>, Option<String>);

/// Downloads the manifest of a tag. Returns it with its `Content-Type`, or `None` if there is no such tag. Errors: more
/// than 1 MiB, or bytes that differ from the SHA-256 that the registry reports, if it reports one.
fn download_manifest(connection: &mut Connection<'_>, tag: &str) -> Result<Option<Served>, Error> {
    let address = connection.address(&format!("manifests/{tag}"));
    let request = HttpRequest { accept: Some(MANIFESTS), ..HttpRequest::without_body(Method::GET, address) };
    let response = connection.send(request, &[StatusCode::OK, StatusCode::NOT_FOUND])?;
    if response.status() == StatusCode::NOT_FOUND {
        return Ok(None);
    }
    let reported = header_value(&response, &MANIFEST_DIGEST).filter(|digest| digest.starts_with("sha256:"));
    let media_type = header_value(&response, &CONTENT_TYPE);
    let size: Option<u64> = header_value(&response, &CONTENT_LENGTH).and_then(|length| length.parse().ok());
    check_size("manifest", size.unwrap_or_default(), LARGEST_DOCUMENT).map_err(|error| connection.locate(error))?;
    let bytes = connection.read_body(response)?;
    let found = digest_of(&bytes);
    match reported.filter(|reported| *reported != found) {
        Some(reported) => Err(connection.locate(error::wrong_digest("manifest", &reported, &found))),
        None => Ok(Some((bytes, media_type))),
    }
}

/// Downloads the blob `wanted` and checks its size and digest. `what` names the blob in errors; `progress` receives the
/// number of bytes that came so far. Errors: no such blob, a download that ends early, or another size or digest.
fn download_blob(
    connection: &mut Connection<'_>,
    what: &'static str,
    wanted: &Descriptor,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<u8>, Error> {
    let address = connection.address(&format!("blobs/{}", wanted.digest));
    let request =
        HttpRequest { expected_response_bytes: wanted.size, ..HttpRequest::without_body(Method::GET, address.clone()) };
    let response = connection.send(request, &[StatusCode::OK])?;
    let length: Option<u64> = header_value(&response, &CONTENT_LENGTH).and_then(|length| length.parse().ok());
    if let Some(found) = length.filter(|length| *length != wanted.size) {
        return Err(connection.locate(error::wrong_size(what, wanted.size, found)));
    }

    let mut bytes = Vec::with_capacity(wanted.size as usize);
    let reader = response.into_body().into_reader().take(wanted.size + 1);
    match (Watched { bytes: reader, done: 0, progress }).read_to_end(&mut bytes) {
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => {
            return Err(connection.request_error(&address, error.into()));
        }
        _ => {}
    }
    let found = bytes.len() as u64;
    if found < wanted.size {
        return Err(truncated(what, &connection.location.to_string(), wanted.size, found));
    }
    wanted.check(what, &bytes).map_err(|error| connection.locate(error))?;
    Ok(bytes)
}

/// Uploads a blob, unless the registry has it already. `progress` receives the number of bytes that are there so far.
/// Errors: no answer, or a status other than those of a successful upload.
fn upload_blob(connection: &mut Connection<'_>, bytes: &[u8], progress: &mut dyn FnMut(u64)) -> Result<(), Error> {
    let digest = digest_of(bytes);
    let request = HttpRequest::without_body(Method::HEAD, connection.address(&format!("blobs/{digest}")));
    let there = connection.send(request, &[StatusCode::OK, StatusCode::NOT_FOUND])?;
    if there.status() == StatusCode::OK {
        progress(bytes.len() as u64);
        return Ok(());
    }

    let from = connection.address("blobs/uploads/");
    let request =
        HttpRequest { body: Some((b"".as_slice(), BINARY)), ..HttpRequest::without_body(Method::POST, from.clone()) };
    let response = connection.send(request, &[StatusCode::ACCEPTED])?;
    let location = header_value(&response, &LOCATION).unwrap_or_default();
    let address = connection.resolve_redirect(&from, &location)?.with_query(&[("digest", &digest)]);
    let request = HttpRequest {
        body: Some((bytes, BINARY)),
        progress: Some(progress),
        ..HttpRequest::without_body(Method::PUT, address)
    };
    connection.send(request, &[StatusCode::CREATED]).map(|_| ())
}

/// Returns the tags of the repository, the highest version last, for messages. Leaves out tags that are longer than 128
/// bytes, begin with `sha256-`, or have other characters than ASCII letters, digits, `.`, `_` and `-`. Empty if the
/// registry gives no list.
fn list_tags(connection: &mut Connection<'_>) -> Vec<String> {
    let request = HttpRequest::without_body(Method::GET, connection.address("tags/list"));
    let answer = connection.send(request, &[StatusCode::OK]).and_then(|answer| connection.read_body(answer));
    let read = |text: Vec<u8>| {
        let mut answer: Value = serde_json::from_slice(&text).ok()?;
        serde_json::from_value(answer.get_mut("tags")?.take()).ok()
    };
    let mut tags: Vec<String> = answer.ok().and_then(read).unwrap_or_default();
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    tags.retain(|tag| tag.len() <= 128 && tag.bytes().all(letters) && !tag.starts_with("sha256-"));
    tags.sort_by(|left, right| compare_versions(left, right));
    tags
}

/// Returns `name:version`, as the progress of a transfer shows it.
fn progress_title(location: &Location) -> String {
    format!("{}:{}", location.name.as_deref().unwrap_or_default(), location.version.as_deref().unwrap_or_default())
}

/// Returns the value of a response's header. `None` if it is missing or not visible ASCII.
fn header_value(response: &Response<Body>, name: &HeaderName) -> Option<String> {
    response.headers().get(name)?.to_str().ok().map(str::to_owned)
}
