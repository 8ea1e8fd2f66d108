//! Where a filter is shipped to: the URL of a store, or a directory.

use crate::error::{Error, Result};
use std::fmt;
use std::path::PathBuf;
use url::Url;

/// What a URL or a path names.
pub(crate) enum Place {
    Directory(PathBuf),
    Remote(Url),
}

impl Place {
    pub(crate) fn of(url: &str) -> Result<Self> {
        let refused =
            |expected| Err(Error::Setting { name: "URL", expected, found: without_secrets(url) });
        if !url.contains("://") {
            if lacks_a_slash(url) {
                return refused(
                    "`://` behind the scheme, as in s3://BUCKET/PREFIX, or `./` before the name of \
                     a directory that looks like one",
                );
            }
            return Ok(Self::Directory(PathBuf::from(url)));
        }
        let parsed = Url::parse(url).map_err(|error| unusable(url, &error))?;
        let has_user = !parsed.username().is_empty() || parsed.password().is_some();
        // A secret would be in messages, and in files that others read; what is left out would have
        // two filters share a place.
        if has_user || parsed.query().is_some() || parsed.fragment().is_some() {
            return refused(
                "one without user, query and fragment: credentials come from the environment; in \
                 names write `?` as %3F, `#` as %23",
            );
        }
        let directory = parsed.to_file_path().ok().filter(|_| parsed.scheme() == "file");
        Ok(directory.map_or(Self::Remote(parsed), Self::Directory))
    }
}

/// Returns whether this begins like a URL, but for a slash or both.
fn lacks_a_slash(url: &str) -> bool {
    let schemes = ["s3:", "gs:", "az:", "file:", "http:", "https:", "memory:"];
    if schemes.iter().any(|scheme| url.starts_with(scheme)) {
        return true;
    }
    let Some((scheme, rest)) = url.split_once(":/") else { return false };
    let is_of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte);
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(is_of_scheme)
        && !rest.is_empty()
}

pub(crate) fn unusable(url: &str, error: &dyn fmt::Display) -> Error {
    Error::Setting {
        name: "URL",
        expected: "s3://BUCKET/PREFIX, file:///DIRECTORY, or a directory",
        found: format!("{} ({error})", without_secrets(url)),
    }
}

/// Returns a URL that cannot be used without what may be a secret in it: the user, up to the last
/// `@`, the query and the fragment.
fn without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once(":/").unwrap_or(("", url));
    let (slashes, rest) = rest.strip_prefix('/').map_or((":/", rest), |rest| ("://", rest));
    let (place, end) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    let mark = end.get(..1).map_or(String::new(), |mark| format!("{mark}…"));
    match place.rsplit_once('@') {
        // Any of them may be in a password.
        _ if end.contains('@') => format!("{scheme}{slashes}…"),
        Some((_, host)) => format!("{scheme}{slashes}…@{host}{mark}"),
        None => format!("{scheme}{slashes}{place}{mark}"),
    }
}
