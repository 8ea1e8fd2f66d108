//! The layer over services of the real tower and axum.

use axum::Router;
use axum::body::Body;
use axum::extract::{OriginalUri, State};
use axum::routing::post;
use ebbtide::{Durability, Filter, Fingerprint, Options};
use ebbtide_tower::{IdempotencyLayer, MAX_KEY, Refusal};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Barrier, Notify};
use tower::{Layer, Service, ServiceExt, service_fn};

/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

fn open(dir: &Path) -> Arc<Filter<Fingerprint>> {
    let day = Fingerprint::window(Duration::from_secs(86_400)).fpr(1e-9);
    Arc::new(Filter::open_or_create(dir, day, Options::new()).unwrap())
}

fn request(method: Method, path: &str, key: Option<&str>) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(key) = key {
        request = request.header("Idempotency-Key", key);
    }
    request.body(Body::empty()).unwrap()
}

fn order(key: &str) -> Request<Body> {
    request(Method::POST, "/orders", Some(key))
}

/// What the handlers of a test did.
#[derive(Default)]
struct Done {
    runs: AtomicUsize,
    statuses: Mutex<Vec<StatusCode>>,
}

/// Responds with the statuses in turn, then with 201; `500` panics if it is the status 599.
async fn handler(State(done): State<Arc<Done>>) -> (StatusCode, &'static str) {
    done.runs.fetch_add(1, Ordering::Relaxed);
    let status = done.statuses.lock().unwrap().pop().unwrap_or(StatusCode::CREATED);
    (status, "ordered")
}

fn routes(layer: IdempotencyLayer, done: &Arc<Done>) -> Router {
    let all = post(handler).get(handler).put(handler);
    let router = Router::new().route("/orders", all.clone()).route("/refunds", all);
    router.layer(layer).with_state(done.clone())
}

async fn status(router: &Router, request: Request<Body>) -> StatusCode {
    router.clone().oneshot(request).await.unwrap().status()
}

#[tokio::test]
async fn a_repeated_request_runs_once_also_after_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("keys");
    let (filter, done) = (open(&dir), Arc::new(Done::default()));
    let router = routes(IdempotencyLayer::new(filter.clone()), &done);
    let first = router.clone().oneshot(order("a")).await.unwrap();
    assert_eq!(first.status(), StatusCode::CREATED);
    assert_eq!(first.into_body().collect().await.unwrap().to_bytes(), "ordered");
    let again = router.clone().oneshot(order("a")).await.unwrap();
    assert_eq!(again.status(), StatusCode::CONFLICT);
    assert!(!again.headers().contains_key(header::RETRY_AFTER), "no repetition makes sense");
    assert_eq!(status(&router, order("b")).await, StatusCode::CREATED);
    filter.close().unwrap();

    let filter = open(&dir);
    let router = routes(IdempotencyLayer::new(filter.clone()), &done);
    assert_eq!(status(&router, order("a")).await, StatusCode::CONFLICT);
    assert_eq!(done.runs.load(Ordering::Relaxed), 2);
    filter.close().unwrap();
}

#[tokio::test]
async fn a_key_belongs_to_a_method_a_path_and_a_scope() {
    let home = tempfile::tempdir().unwrap();
    let done = Arc::new(Done::default());
    let account = |parts: &http::request::Parts| {
        parts.headers.get("account").map(|name| name.as_bytes().to_vec()).unwrap_or_default()
    };
    let layer = IdempotencyLayer::new(open(&home.path().join("keys"))).scope(account);
    let router = routes(layer, &done);
    let of = |account: &'static str| {
        let mut request = order("a");
        request.headers_mut().insert("account", account.parse().unwrap());
        request
    };
    assert_eq!(status(&router, of("1")).await, StatusCode::CREATED);
    assert_eq!(status(&router, of("2")).await, StatusCode::CREATED, "of another account");
    assert_eq!(status(&router, of("1")).await, StatusCode::CONFLICT);
    let elsewhere = request(Method::POST, "/refunds", Some("a"));
    assert_eq!(status(&router, elsewhere).await, StatusCode::CREATED, "another path");
    let put = request(Method::PUT, "/refunds", Some("a"));
    assert_eq!(status(&router, put).await, StatusCode::CREATED, "another method");
}

fn original(parts: &http::request::Parts) -> &str {
    match parts.extensions.get::<OriginalUri>() {
        Some(OriginalUri(uri)) => uri.path(),
        None => parts.uri.path(),
    }
}

#[tokio::test]
async fn a_key_belongs_to_the_whole_path_of_a_nested_router() {
    let home = tempfile::tempdir().unwrap();
    let layer = |name: &str| IdempotencyLayer::new(open(&home.path().join(name)));
    let nested = |orders| Router::new().nest("/accounts/{account}", orders);
    let orders = || Router::new().route("/orders", post(|| async { StatusCode::CREATED }));
    let routers = [
        nested(orders().layer(layer("within").path(original))),
        nested(orders()).layer(layer("around")),
    ];
    for router in routers {
        for path in ["/accounts/1/orders", "/accounts/2/orders"] {
            let order = || request(Method::POST, path, Some("a"));
            assert_eq!(status(&router, order()).await, StatusCode::CREATED, "{path}");
            assert_eq!(status(&router, order()).await, StatusCode::CONFLICT, "{path}");
        }
    }
}

#[tokio::test]
async fn requests_without_a_key_run_unless_one_is_required() {
    let home = tempfile::tempdir().unwrap();
    let (filter, done) = (open(&home.path().join("keys")), Arc::new(Done::default()));
    let router = routes(IdempotencyLayer::new(filter.clone()), &done);
    for _ in 0..2 {
        let without = request(Method::POST, "/orders", None);
        assert_eq!(status(&router, without).await, StatusCode::CREATED);
        let get = request(Method::GET, "/orders", Some("a"));
        assert_eq!(status(&router, get).await, StatusCode::CREATED, "a GET changes nothing");
    }
    let router = routes(IdempotencyLayer::new(filter).required(), &done);
    let runs = done.runs.load(Ordering::Relaxed);
    let without = request(Method::POST, "/orders", None);
    assert_eq!(status(&router, without).await, StatusCode::BAD_REQUEST);
    let mut two = order("a");
    two.headers_mut().append("idempotency-key", "b".parse().unwrap());
    assert_eq!(status(&router, two).await, StatusCode::BAD_REQUEST, "two keys");
    assert_eq!(status(&router, order("")).await, StatusCode::BAD_REQUEST, "an empty one");
    let long = "k".repeat(MAX_KEY + 1);
    assert_eq!(status(&router, order(&long)).await, StatusCode::BAD_REQUEST, "a long one");
    assert_eq!(done.runs.load(Ordering::Relaxed), runs);
    assert_eq!(status(&router, order(&long[1..])).await, StatusCode::CREATED);
    let put = request(Method::PUT, "/orders", None);
    assert_eq!(status(&router, put).await, StatusCode::CREATED, "a PUT needs none");
}

#[tokio::test]
async fn a_request_whose_response_is_a_failure_can_be_repeated() {
    let home = tempfile::tempdir().unwrap();
    let (filter, done) = (open(&home.path().join("keys")), Arc::new(Done::default()));
    let failures = [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::TOO_MANY_REQUESTS];
    *done.statuses.lock().unwrap() = failures.to_vec();
    let router = routes(IdempotencyLayer::new(filter.clone()), &done);
    assert_eq!(status(&router, order("a")).await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(status(&router, order("a")).await, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(status(&router, order("a")).await, StatusCode::CREATED);
    assert_eq!(status(&router, order("a")).await, StatusCode::CONFLICT);
    // What counts as done is a setting.
    *done.statuses.lock().unwrap() = vec![StatusCode::UNPROCESSABLE_ENTITY];
    let final_4xx = IdempotencyLayer::new(filter).done_if(|head| !head.status.is_server_error());
    let router = routes(final_4xx, &done);
    assert_eq!(status(&router, order("b")).await, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(status(&router, order("b")).await, StatusCode::CONFLICT);
}

/// Calls a service of gRPC whose response has this `grpc-status` in its head, none if it is empty.
async fn call_grpc(layer: &IdempotencyLayer, status: &str, runs: &Arc<AtomicUsize>) -> StatusCode {
    let (status, runs) = (status.to_owned(), runs.clone());
    let service = layer.layer(service_fn(move |_: Request<Body>| {
        runs.fetch_add(1, Ordering::Relaxed);
        let mut response = Response::new(Body::empty());
        if !status.is_empty() {
            response.headers_mut().insert("grpc-status", status.parse().unwrap());
        }
        std::future::ready(Ok::<_, Infallible>(response))
    }));
    service.oneshot(order("a")).await.unwrap().status()
}

#[tokio::test]
async fn a_call_of_grpc_that_fails_with_status_200_can_be_repeated() {
    let home = tempfile::tempdir().unwrap();
    for (name, success) in [("in the head", "0"), ("in the trailers", "")] {
        let filter = open(&home.path().join(name));
        let layer = IdempotencyLayer::new(filter.clone());
        let runs = Arc::new(AtomicUsize::new(0));
        for failed in 1..=2 {
            assert_eq!(call_grpc(&layer, "14", &runs).await, StatusCode::OK, "unavailable");
            assert_eq!(runs.load(Ordering::Relaxed), failed);
            assert_eq!(filter.claims().unwrap(), []);
        }
        assert_eq!(call_grpc(&layer, success, &runs).await, StatusCode::OK);
        assert_eq!(call_grpc(&layer, success, &runs).await, StatusCode::CONFLICT);
        assert_eq!(runs.load(Ordering::Relaxed), 3);
    }
    // Which failures are final is a setting.
    let layer = IdempotencyLayer::new(open(&home.path().join("final")));
    let layer = layer.done_if(|head| head.headers.get("grpc-status").is_none_or(|s| s != "14"));
    let runs = Arc::new(AtomicUsize::new(0));
    assert_eq!(call_grpc(&layer, "14", &runs).await, StatusCode::OK, "unavailable");
    assert_eq!(call_grpc(&layer, "3", &runs).await, StatusCode::OK, "an invalid argument");
    assert_eq!(call_grpc(&layer, "0", &runs).await, StatusCode::CONFLICT);
}

#[tokio::test]
async fn a_service_that_fails_panics_or_is_dropped_releases_the_key() {
    let home = tempfile::tempdir().unwrap();
    let filter = open(&home.path().join("keys"));
    let layer = IdempotencyLayer::new(filter.clone());
    let fails = layer.layer(service_fn(|_: Request<Body>| async {
        Err::<Response<Body>, &str>("the database is away")
    }));
    assert_eq!(fails.oneshot(order("a")).await.unwrap_err(), "the database is away");
    assert_eq!(filter.claims().unwrap(), []);

    let panics = layer.layer(service_fn(|request: Request<Body>| async move {
        assert!(request.uri().path().is_empty(), "a mistake of the handler");
        Ok::<_, Infallible>(Response::new(Body::empty()))
    }));
    let task = tokio::spawn(panics.oneshot(order("a")));
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(filter.claims().unwrap(), []);
    let in_call = layer.layer(service_fn(|_: Request<Body>| {
        assert!(std::hint::black_box(false), "before there is a future");
        std::future::ready(Ok::<_, Infallible>(Response::new(Body::empty())))
    }));
    assert!(tokio::spawn(in_call.oneshot(order("a"))).await.unwrap_err().is_panic());
    assert_eq!(filter.claims().unwrap(), []);

    let begun = Arc::new(Notify::new());
    let notify = begun.clone();
    let never = layer.layer(service_fn(move |_: Request<Body>| {
        let begun = notify.clone();
        async move {
            begun.notify_one();
            std::future::pending::<Result<Response<Body>, Infallible>>().await
        }
    }));
    let task = tokio::spawn(never.oneshot(order("a")));
    tokio::time::timeout(LIMIT, begun.notified()).await.unwrap();
    assert_eq!(filter.claims().unwrap().len(), 1);
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!(filter.claims().unwrap(), [], "the client hung up");

    let done = Arc::new(Done::default());
    assert_eq!(status(&routes(layer, &done), order("a")).await, StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_requests_at_once_one_runs_and_the_others_get_409_and_a_time_to_wait() {
    const REQUESTS: usize = 16;
    let home = tempfile::tempdir().unwrap();
    let layer = IdempotencyLayer::new(open(&home.path().join("keys")));
    let (runs, end) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (count, wait) = (runs.clone(), end.clone());
    let service = layer.layer(service_fn(move |_: Request<Body>| {
        let (count, wait) = (count.clone(), wait.clone());
        async move {
            count.fetch_add(1, Ordering::Relaxed);
            wait.notified().await;
            Ok::<_, Infallible>(Response::new(Body::empty()))
        }
    }));
    let start = Arc::new(Barrier::new(REQUESTS));
    let (send, mut refused) = tokio::sync::mpsc::unbounded_channel();
    let tasks: Vec<_> = (0..REQUESTS)
        .map(|_| {
            let (service, start, send) = (service.clone(), start.clone(), send.clone());
            tokio::spawn(async move {
                start.wait().await;
                let response = service.oneshot(order("a")).await.unwrap();
                if response.status() != StatusCode::OK {
                    send.send(response).unwrap();
                    return 0;
                }
                1
            })
        })
        .collect();
    // All others are refused while the one runs.
    for _ in 1..REQUESTS {
        let response = tokio::time::timeout(LIMIT, refused.recv()).await.unwrap().unwrap();
        assert_eq!(response.status(), StatusCode::CONFLICT);
        let seconds = response.headers()[header::RETRY_AFTER].to_str().unwrap().parse::<u64>();
        assert!((1..=30).contains(&seconds.unwrap()));
    }
    end.notify_one();
    let mut succeeded = 0;
    for task in tasks {
        succeeded += tokio::time::timeout(LIMIT, task).await.unwrap().unwrap();
    }
    assert_eq!((succeeded, runs.load(Ordering::Relaxed)), (1, 1));
}

#[tokio::test]
async fn the_response_to_a_repetition_is_a_setting() {
    let home = tempfile::tempdir().unwrap();
    let layer = IdempotencyLayer::new(open(&home.path().join("keys")));
    let layer = layer.refuse_with(|refusal: Refusal| {
        let (status, text) = match refusal {
            Refusal::Done => (StatusCode::OK, "done before"),
            refusal => (refusal.status(), "no"),
        };
        Response::builder().status(status).body(text.to_owned()).unwrap()
    });
    // A body without a default would do: here the response is made of text.
    let service = layer.layer(service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new("done".to_owned()))
    }));
    assert_eq!(service.clone().oneshot(order("a")).await.unwrap().body(), "done");
    assert_eq!(service.oneshot(order("a")).await.unwrap().body(), "done before");
}

#[tokio::test]
async fn with_durable_the_key_of_a_response_is_on_the_disk() {
    let home = tempfile::tempdir().unwrap();
    let spec = Fingerprint::window(Duration::from_secs(86_400));
    let options = Options::new().durability(Durability::Never);
    let filter = Arc::new(Filter::create(home.path().join("keys"), spec, options).unwrap());
    let done = Arc::new(Done::default());
    let router = routes(IdempotencyLayer::new(filter.clone()).durable(), &done);
    let before = filter.durable_upto().unwrap();
    let answer = tokio::time::timeout(LIMIT, router.oneshot(order("a")));
    assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::CREATED);
    // The claim and its confirmation.
    assert!(filter.durable_upto().unwrap() >= before + 2);
}

#[tokio::test]
async fn with_durable_a_repetition_is_answered_once_the_key_is_on_the_disk() {
    let home = tempfile::tempdir().unwrap();
    let spec = Fingerprint::window(Duration::from_secs(86_400));
    let options = Options::new().durability(Durability::Never);
    let filter = Arc::new(Filter::create(home.path().join("keys"), spec, options).unwrap());
    let done = Arc::new(Done::default());
    // As if the client of the first request had hung up during its sync.
    let first = routes(IdempotencyLayer::new(filter.clone()), &done);
    let before = filter.durable_upto().unwrap();
    assert_eq!(status(&first, order("a")).await, StatusCode::CREATED);
    assert_eq!(filter.durable_upto().unwrap(), before);
    let router = routes(IdempotencyLayer::new(filter.clone()).durable(), &done);
    let answer = tokio::time::timeout(LIMIT, router.oneshot(order("a")));
    assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::CONFLICT);
    assert!(filter.durable_upto().unwrap() >= before + 2);
}

#[tokio::test]
async fn a_request_that_outlives_its_lease_is_reported_and_one_that_cannot_claim_gets_503() {
    let home = tempfile::tempdir().unwrap();
    let (filter, errors) = (open(&home.path().join("keys")), Arc::new(Mutex::new(Vec::new())));
    let reported = errors.clone();
    let layer = IdempotencyLayer::new(filter.clone())
        .lease(Duration::from_millis(1))
        .on_error(move |error| reported.lock().unwrap().push(error.code().name()));
    let ends_claim = filter.clone();
    let mut service = layer.layer(service_fn(move |_: Request<Body>| {
        let filter = ends_claim.clone();
        async move {
            // Its lease is over as soon as it is not among the claims.
            while !filter.claims().unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok::<_, Infallible>(Response::new(Body::empty()))
        }
    }));
    let late = tokio::time::timeout(LIMIT, service.call(order("a"))).await.unwrap();
    assert_eq!(late.unwrap().status(), StatusCode::OK, "the response is passed on");
    let _ = service.call(order("a")).await;
    filter.close().unwrap();
    assert_eq!(service.call(order("b")).await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(*errors.lock().unwrap(), ["lease-lost", "lease-lost", "closed"]);
}
