//! Renewal against a control plane of a few lines: it counts what it is asked and says yes or no.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// What the control plane says to the next refresh.
type Mood = Arc<StdMutex<&'static str>>;

struct Fake {
    url: String,
    asked: Arc<AtomicUsize>,
    mood: Mood,
}

async fn fake() -> Fake {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let asked = Arc::new(AtomicUsize::new(0));
    let mood: Mood = Arc::new(StdMutex::new("200 OK"));
    let (counted, minded) = (Arc::clone(&asked), Arc::clone(&mood));
    tokio::spawn(async move {
        while let Ok((caller, _)) = listener.accept().await {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            let status = *minded.lock().expect("a mood");
            answer(caller, status, number).await;
        }
    });
    Fake { url, asked, mood }
}

async fn answer(mut caller: TcpStream, status: &str, number: usize) {
    let mut request = vec![0; 8192];
    let _ = caller.read(&mut request).await;
    let body = if status.starts_with("200") {
        format!(
            r#"{{"felix_token":"t{number}","expires_in":900,"refresh_token":"r{number}","refresh_expires_in":9000}}"#
        )
    } else {
        r#"{"code":"forbidden","message":"no permissions","request_id":null}"#.to_owned()
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _ = caller.write_all(format!("{head}{body}").as_bytes()).await;
    let _ = caller.shutdown().await;
}

impl Fake {
    fn exchange(&self) -> Exchange {
        Exchange {
            controlplane_url: self.url.clone(),
            tls: crate::trust::Tls::default(),
            tenant: "dev".into(),
            timeout: Duration::from_secs(5),
        }
    }

    fn source(&self, store: &Store) -> Source {
        let store = Some(store.clone());
        Source::new(Holder::Person, Audience::Broker, self.exchange(), store)
    }

    /// Credentials whose token came `age` seconds ago and lives `life` seconds.
    fn kept(&self, age: u64, life: u64) -> Credentials {
        let issued_at = now_seconds() - age;
        let mut kept = Credentials::new(&self.url, "dev");
        kept.keep(
            Audience::Broker,
            Issued {
                token: "old".into(),
                issued_at,
                expires_at: issued_at + life,
                refresh_token: Some("r".into()),
                refresh_expires_at: None,
            },
        );
        kept
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn refuses(&self) {
        *self.mood.lock().expect("a mood") = "403 Forbidden";
    }
}

fn store(directory: &tempfile::TempDir) -> Store {
    Store::beside(&directory.path().join("config.toml"), "prod")
}

#[tokio::test]
async fn a_fresh_token_is_given_out_and_nobody_is_asked() {
    let (directory, fake) = (tempfile::tempdir().expect("a directory"), fake().await);
    let store = store(&directory);
    store.save(&fake.kept(10, 900)).expect("saved");
    let token = fake.source(&store).token().await.expect("a token");
    assert_eq!((token.reveal(), fake.asked()), ("old", 0));
}

#[tokio::test]
async fn many_commands_at_once_spend_one_refresh_token() {
    let (directory, fake) = (tempfile::tempdir().expect("a directory"), fake().await);
    let store = store(&directory);
    store.save(&fake.kept(1_000, 900)).expect("saved");
    let sources: Vec<Source> = (0..5).map(|_| fake.source(&store)).collect();
    let asking = tokio::join!(
        sources[0].token(),
        sources[1].token(),
        sources[2].token(),
        sources[3].token(),
        sources[4].token()
    );
    for token in [asking.0, asking.1, asking.2, asking.3, asking.4] {
        assert_eq!(token.expect("a token").reveal(), "t0");
    }
    assert_eq!(fake.asked(), 1);
    let kept = store.load().expect("read").expect("kept");
    let issued = kept.issued(Audience::Broker).expect("a token");
    assert_eq!(issued.refresh_token, Some("r0".into()));
}

#[tokio::test]
async fn a_refused_renewal_is_not_tried_again_and_the_held_token_is_used_while_it_is_good() {
    let (directory, fake) = (tempfile::tempdir().expect("a directory"), fake().await);
    let store = store(&directory);
    fake.refuses();
    store.save(&fake.kept(700, 900)).expect("saved");
    let token = fake.source(&store).token().await.expect("the held token");
    assert_eq!((token.reveal(), fake.asked()), ("old", 1));
    let again = fake.source(&store).token().await.expect("the held token");
    assert_eq!((again.reveal(), fake.asked()), ("old", 1));
}

#[tokio::test]
async fn an_ended_session_says_so_and_how_to_begin_another() {
    let (directory, fake) = (tempfile::tempdir().expect("a directory"), fake().await);
    let store = store(&directory);
    fake.refuses();
    store.save(&fake.kept(1_000, 900)).expect("saved");
    for _ in 0..2 {
        let failure = fake.source(&store).token().await.expect_err("ended");
        assert_eq!(failure.exit, Exit::Refused);
        assert!(
            failure.message.contains("your session has ended"),
            "{}",
            failure.message
        );
        assert_eq!(failure.hint.as_deref(), Some(SIGN_IN));
    }
    assert_eq!(fake.asked(), 1);
}

#[tokio::test]
async fn an_unreachable_control_plane_does_not_end_a_session() {
    let (directory, fake) = (tempfile::tempdir().expect("a directory"), fake().await);
    let store = store(&directory);
    let mut away = fake.exchange();
    away.controlplane_url = "http://127.0.0.1:9".into();
    let mut kept = fake.kept(700, 900);
    kept.controlplane_url.clone_from(&away.controlplane_url);
    store.save(&kept).expect("saved");
    let source = Source::new(Holder::Person, Audience::Broker, away, Some(store.clone()));
    assert_eq!(
        source.token().await.expect("the held token").reveal(),
        "old"
    );
    assert_eq!(store.load().expect("read"), Some(kept));
}

#[tokio::test]
async fn whoever_asks_again_was_refused_and_gets_another_token() {
    let (directory, fake) = (tempfile::tempdir().expect("a directory"), fake().await);
    let store = store(&directory);
    store.save(&fake.kept(10, 900)).expect("saved");
    let source = fake.source(&store);
    assert_eq!(source.token().await.expect("a token").reveal(), "old");
    assert_eq!(source.next_token().await.expect("a token").reveal(), "t0");
}

#[tokio::test]
async fn tokens_of_another_tenant_are_not_shown_to_this_one() {
    let (directory, fake) = (tempfile::tempdir().expect("a directory"), fake().await);
    let store = store(&directory);
    let mut kept = fake.kept(10, 900);
    kept.tenant = "other".into();
    store.save(&kept).expect("saved");
    let failure = fake
        .source(&store)
        .token()
        .await
        .expect_err("another tenant");
    assert_eq!((failure.exit, fake.asked()), (Exit::Refused, 0));
}

#[tokio::test]
async fn a_service_account_exchanges_its_key_once_and_again_when_its_session_has_ended() {
    use std::os::unix::fs::OpenOptionsExt as _;
    let (directory, fake) = (tempfile::tempdir().expect("a directory"), fake().await);
    let file = directory.path().join("key");
    let mut options = std::fs::OpenOptions::new();
    let mut written = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&file)
        .expect("a file");
    std::io::Write::write_all(&mut written, b"fsk_dev.k1.c2VjcmV0\n").expect("written");
    let holder = || Holder::ServiceAccount(file.clone());
    let source = |store| Source::new(holder(), Audience::Broker, fake.exchange(), store);
    let alone = source(None);
    assert_eq!(alone.token().await.expect("a token").reveal(), "t0");
    assert_eq!(alone.token().await.expect("the same").reveal(), "t0");
    let store = store(&directory);
    let kept = source(Some(store.clone())).token().await.expect("a token");
    let again = source(Some(store)).token().await.expect("the same");
    assert_eq!(
        (kept.reveal(), again.reveal(), fake.asked()),
        ("t1", "t1", 2)
    );
}
