//! What the error of a store means, and what to do. Decided by codes, never by texts that may have
//! names of the user's in them.

use crate::error::Error;
use object_store::Error as StoreError;
use std::io::{self, ErrorKind};

/// What the texts begin with of servers' answers, of answers with a status, and of a removal among
/// several that was refused.
const ANSWER: &str = "Server returned ";
const STATUS: &str = "non-2xx status code: ";
const REMOVAL: &str = "DeleteObjects request failed ";
/// What the texts of directories begin with if a file that is whole could not get its name, and the
/// system's error (EPERM) if a file system has no hard links.
const NAMING: &str = "Unable to rename file: ";
const NOT_PERMITTED: i32 = 1;
/// What to do about an object that has lost its end.
const SHORT: &str = "fetch an older state with `--at`";

/// What an error says apart from where it happened.
#[derive(Debug, Default)]
struct Codes {
    /// The code in a server's answer, and its message.
    code: Option<(String, String)>,
    /// The status of an answer, or 0.
    status: u16,
    /// The error of this machine's system.
    system: Option<ErrorKind>,
    /// Whether a file could not get its name; whether because the file system has no hard links.
    is_naming: bool,
    is_unlinkable: bool,
    /// Whether an object ends before the part that was asked for.
    is_short: bool,
}

impl Codes {
    fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        let (mut codes, mut next) = (Self::default(), Some(error));
        while let Some(cause) = next {
            codes.add(cause);
            next = cause.source();
        }
        codes
    }

    fn add(&mut self, cause: &(dyn std::error::Error + 'static)) {
        let text = cause.to_string();
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            self.system = Some(error.kind());
            let is_refused = error.raw_os_error() == Some(NOT_PERMITTED);
            self.is_unlinkable =
                self.is_naming && (is_refused || error.kind() == ErrorKind::Unsupported);
        } else if let Some(answer) = text.strip_prefix(ANSWER) {
            let status = answer.strip_prefix(STATUS).and_then(|status| status.get(..3));
            self.status = status.and_then(|status| status.parse().ok()).unwrap_or(self.status);
            let message = element(answer, "Message").unwrap_or_default();
            let code = element(answer, "Code").map(|code| (code.to_owned(), message.to_owned()));
            self.code = code.or(self.code.take());
        } else if let Some((_, code)) = text.rsplit_once(" (code: ")
            && text.starts_with(REMOVAL)
        {
            self.code = Some((code.trim_end_matches(')').to_owned(), String::new()));
        }
        self.is_short |= text.starts_with("Wanted range ");
        self.is_naming |= text.starts_with(NAMING);
    }

    /// Returns whether the code has one of these words.
    fn has(&self, words: &[&str]) -> bool {
        self.code.as_ref().is_some_and(|(code, _)| words.iter().any(|word| code.contains(word)))
    }
}

/// The codes of a bucket, or a container, that does not exist.
const NO_BUCKET: [&str; 2] = ["NoSuchBucket", "ContainerNotFound"];

/// Returns whether it is not an object that does not exist, but what it would be in.
pub fn is_of_bucket(error: &StoreError) -> bool {
    Codes::of(error).has(&NO_BUCKET)
}

/// Says in one sentence what a store's error means. `object` is what messages call the object.
#[must_use]
pub fn explain(object: String, action: &'static str, error: &StoreError) -> Error {
    let codes = Codes::of(error);
    let is_denied =
        matches!(error, StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. });
    let is_unsupported =
        matches!(error, StoreError::NotSupported { .. } | StoreError::NotImplemented { .. });
    let is_full = matches!(codes.system, Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded));
    if codes.is_short || codes.status == 416 || codes.has(&["InvalidRange"]) {
        // It is damaged, and another one may lead to the same state.
        return Error::object(object, "all of the object", "a shorter one", SHORT);
    }
    let (remedy, is_transient) = if codes.has(&["RequestTimeTooSkewed"]) {
        ("the clock of this machine is wrong: set it (chrony, systemd-timesyncd)", false)
    } else if codes.has(&NO_BUCKET) {
        ("there is no such bucket: create it, or correct the URL", false)
    } else if is_full
        || codes.status == 507
        || codes.has(&["QuotaExceeded", "StorageFull", "InsufficientStorage"])
    {
        ("the store is full: make room, or raise its quota; a shipper tries again", true)
    } else if codes.is_unlinkable {
        (
            "the file system of this directory has no hard links, which a put needs: use another",
            false,
        )
    } else if is_denied
        || codes.system == Some(ErrorKind::PermissionDenied)
        || codes.has(&[
            "SignatureDoesNotMatch",
            "ExpiredToken",
            "InvalidAccessKeyId",
            "AccessDenied",
        ])
    {
        ("the credentials do not allow this: give others, or allow get, put, list, delete", false)
    } else if is_unsupported {
        ("this store cannot put an object only if it is absent: use another one", false)
    } else {
        ("look at the network and the store; a shipper tries again", true)
    };
    let found = match codes.code {
        Some((code, message)) => match message.trim_end_matches('.') {
            "" => code,
            message => format!("{code}: {message}"),
        },
        None => text_of(error),
    };
    Error::Store { object, action, found, remedy, is_transient }
}

/// Returns the text of an error with its causes, in one line.
fn text_of(error: &StoreError) -> String {
    let mut found = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let text = cause.to_string();
        if !found.contains(&text) {
            found = format!("{found}: {text}");
        }
        source = cause.source();
    }
    found.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the text of an element of what a server of S3 answers.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}
