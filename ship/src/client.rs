//! The client of a store, by its URL. It does not know what is stored.

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreScheme, Result};
use std::sync::Arc;
use url::Url;

/// A client, and where in its store the URL leads.
type Client = (Arc<dyn ObjectStore>, Path);

/// Creates the client for a URL. Settings that its store does not know are left out.
pub fn client(url: &Url, settings: Vec<(String, String)>) -> Result<Client> {
    match ObjectStoreScheme::parse(url)? {
        #[cfg(feature = "aws")]
        (ObjectStoreScheme::AmazonS3, path) => Ok((clouds::aws(url, settings)?, path)),
        #[cfg(feature = "gcp")]
        (ObjectStoreScheme::GoogleCloudStorage, path) => Ok((clouds::gcp(url, settings)?, path)),
        #[cfg(feature = "azure")]
        (ObjectStoreScheme::MicrosoftAzure, path) => Ok((clouds::azure(url, settings)?, path)),
        _ => {
            let (objects, path) = object_store::parse_url_opts(url, settings)?;
            Ok((objects.into(), path))
        }
    }
}

#[cfg(any(feature = "aws", feature = "gcp", feature = "azure"))]
mod clouds {
    use object_store::{ClientOptions, ObjectStore, Result, RetryConfig};
    use std::str::FromStr;
    use std::sync::Arc;
    use std::time::Duration;
    use url::Url;

    /// The time for which a request that failed is repeated, and the longest pause: together less
    /// than an answer may take. Then the caller learns what the server says, and tries again.
    const REPEATED: Duration = Duration::from_secs(10);
    const PAUSE_MOST: Duration = Duration::from_secs(3);

    fn retry() -> RetryConfig {
        let mut retry = RetryConfig { retry_timeout: REPEATED, ..RetryConfig::default() };
        retry.backoff.max_backoff = PAUSE_MOST;
        retry
    }

    /// Returns how requests are made. None has a limit of time of its own: on a slow line a long one
    /// takes minutes, and the caller has a limit by what is sent.
    fn requests() -> ClientOptions {
        ClientOptions::new().with_timeout_disabled()
    }

    /// Passes the settings that have a known name to a builder.
    fn configured<B, N: FromStr>(
        builder: B,
        settings: Vec<(String, String)>,
        with: impl Fn(B, N, String) -> B,
    ) -> B {
        let known =
            settings.into_iter().filter_map(|(name, value)| Some((name.parse().ok()?, value)));
        known.fold(builder, |builder, (name, value)| with(builder, name, value))
    }

    #[cfg(feature = "aws")]
    pub fn aws(url: &Url, settings: Vec<(String, String)>) -> Result<Arc<dyn ObjectStore>> {
        use object_store::aws::AmazonS3Builder as Builder;
        let builder = Builder::new().with_url(url.to_string());
        let builder = builder.with_retry(retry()).with_client_options(requests());
        Ok(Arc::new(configured(builder, settings, Builder::with_config).build()?))
    }

    #[cfg(feature = "gcp")]
    pub fn gcp(url: &Url, settings: Vec<(String, String)>) -> Result<Arc<dyn ObjectStore>> {
        use object_store::gcp::GoogleCloudStorageBuilder as Builder;
        let builder = Builder::new().with_url(url.to_string());
        let builder = builder.with_retry(retry()).with_client_options(requests());
        Ok(Arc::new(configured(builder, settings, Builder::with_config).build()?))
    }

    #[cfg(feature = "azure")]
    pub fn azure(url: &Url, settings: Vec<(String, String)>) -> Result<Arc<dyn ObjectStore>> {
        use object_store::azure::MicrosoftAzureBuilder as Builder;
        let builder = Builder::new().with_url(url.to_string());
        let builder = builder.with_retry(retry()).with_client_options(requests());
        Ok(Arc::new(configured(builder, settings, Builder::with_config).build()?))
    }
}
