//! A PostgreSQL server for one test: of this machine's Debian package, in a directory of its own, on a socket of its
//! own, as a user that it accepts. It ends with the test, also with one that is killed.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// How often a server that is starting is asked whether it is there.
const ASKS: usize = 1200;

/// A server, running or killed.
#[derive(Debug)]
pub(crate) struct TestServer {
    /// Ends the server when its input ends, which it also does when this process is killed.
    keeper: Option<Child>,
    dir: TempDir,
    programs: PathBuf,
    /// Who runs it, when it must not be us.
    user: Option<u32>,
    /// Where it listens beside its socket.
    address: String,
}

impl TestServer {
    /// Starts a server, or says loudly that this machine has none.
    pub(crate) fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            eprintln!(
                "SKIPPED: no PostgreSQL on this machine (Debian package `postgresql`); nothing about it was tested"
            );
            return None;
        };
        let mut server = Self::new(programs);
        let data = server.data();
        let mut initdb = server.program("initdb");
        initdb.args(["--auth=trust", "--username=felix", "--encoding=UTF8"]);
        initdb.args(["--locale=C", "--no-sync", "-D"]).arg(&data);
        must(&mut initdb);
        server.resume();
        Some(server)
    }

    fn new(programs: PathBuf) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let user = (number("-u", None) == 0).then(|| number("-u", Some("postgres")));
        // Clients of any user reach the socket.
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        chown(dir.path(), user, None).unwrap();
        Self {
            keeper: None,
            dir,
            programs,
            user,
            address: String::new(),
        }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The host as it stands in a URL.
    pub(crate) fn host(&self) -> String {
        let path = self.dir.path().to_str().unwrap();
        path.replace('/', "%2F")
    }

    /// The URL of a database of that name, which is made.
    pub(crate) fn database(&self, name: &str) -> String {
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(name)
    }

    /// The URL of a database.
    pub(crate) fn url(&self, name: &str) -> String {
        format!("postgres://felix@{}/{name}", self.host())
    }

    /// Runs statements, and returns what they say.
    pub(crate) fn sql(&self, database: &str, statements: &str) -> String {
        let mut psql = self.program("psql");
        psql.args(["-qtAX", "-v", "ON_ERROR_STOP=1", "-U", "felix", "-h"]);
        psql.arg(self.dir.path())
            .args(["-d", database, "-c", statements]);
        must(&mut psql)
    }

    /// `kill -9`, as far as the server goes: nothing of it is written down in order.
    pub(crate) fn kill(&mut self) {
        let text = std::fs::read_to_string(self.data().join("postmaster.pid")).unwrap();
        let server = text.lines().next().unwrap();
        // Who serves a connection would go on for a moment without it, and answer. It is stopped first, so that it starts
        // nobody anew.
        signal("-STOP", &[server]);
        let children = format!("/proc/{server}/task/{server}/children");
        let children = std::fs::read_to_string(children).unwrap();
        let children: Vec<&str> = children.split_whitespace().collect();
        signal("-KILL", &children);
        signal("-KILL", &[server]);
        self.gone();
        while children.iter().any(|child| is_running(child)) {
            std::thread::yield_now();
        }
    }

    /// Starts it (again), and waits until it takes connections.
    pub(crate) fn resume(&mut self) {
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "keeper"]);
        keeper.arg(self.programs.join("postgres"));
        keeper
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(self.dir.path());
        keeper.args(["-c", &format!("listen_addresses={}", self.address)]);
        keeper.args(["-c", "wal_level=replica"]);
        keeper.args(["-c", "max_connections=50", "-c", "shared_buffers=16MB"]);
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("log"))
            .unwrap();
        keeper
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log);
        self.keeper = Some(self.as_its_user(&mut keeper).spawn().unwrap());
        let ready = (0..ASKS).any(|_| {
            let mut ask = self.program("pg_isready");
            ask.args(["-q", "-t", "1", "-h"]).arg(self.dir.path());
            ask.status().unwrap().success() || pause()
        });
        let log = std::fs::read_to_string(self.dir.path().join("log"));
        assert!(ready, "the server did not start: {log:?}");
    }

    /// A standby that has all that this server has, and gets what it will have.
    pub(crate) fn standby(&self) -> Self {
        let mut standby = Self::new(self.programs.clone());
        let mut copy = standby.program("pg_basebackup");
        copy.args([
            "-R",
            "-X",
            "stream",
            "--no-sync",
            "-c",
            "fast",
            "-U",
            "felix",
            "-h",
        ]);
        copy.arg(self.dir.path()).arg("-D").arg(standby.data());
        must(&mut copy);
        standby.resume();
        standby
    }

    /// Starts it again, now with connections by TCP as well, which must be encrypted.
    pub(crate) fn encrypt(&mut self, address: &str, certificate: &str, key: &str) {
        self.gone();
        let rules = "local all all trust\nhostssl all all 127.0.0.0/8 trust\n";
        let files = [
            ("server.crt", certificate),
            ("server.key", key),
            ("pg_hba.conf", rules),
            ("postgresql.auto.conf", "ssl = on\n"),
        ];
        for (name, text) in files {
            let file = self.data().join(name);
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
            chown(&file, self.user, None).unwrap();
        }
        self.address = address.to_owned();
        self.resume();
    }

    /// Commits are answered only when a standby has them, too.
    pub(crate) fn wait_for_standbys(&self) {
        self.sql(
            "postgres",
            "ALTER SYSTEM SET synchronous_standby_names = '*'",
        );
        self.sql("postgres", "SELECT pg_reload_conf()");
    }

    /// Makes a standby the server that takes writes.
    pub(crate) fn promote(&self) {
        self.sql("postgres", "SELECT pg_promote(true, 60)");
    }

    /// Waits until every process of the server has gone, after which its files are nobody's.
    fn gone(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        }
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        self.as_its_user(&mut command);
        command
    }

    fn as_its_user<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        if let Some(user) = self.user {
            command.uid(user).gid(number("-g", Some("postgres")));
        }
        command.current_dir(self.dir.path()).env("LC_ALL", "C")
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.gone();
    }
}

/// Runs a program that does not fail, and returns what it says.
fn must(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn signal(name: &str, processes: &[&str]) {
    if !processes.is_empty() {
        let status = Command::new("kill").arg(name).args(processes).status();
        assert!(status.unwrap().success(), "{name} {processes:?}");
    }
}

/// Whether a process is more than a name that nobody has asked for.
fn is_running(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}

/// Runs a server until it ends or the input does, and ends only when the server has.
const KEEPER: &str = r#"
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
(cat <&3 >/dev/null; kill -QUIT $server 2>/dev/null) &
exec 3<&-
wait $server
"#;

fn programs() -> Option<PathBuf> {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|programs| programs.join("initdb").exists())
        .collect();
    versions.sort_by_key(|programs| version(programs));
    versions.pop()
}

fn version(programs: &Path) -> u32 {
    let name = programs.parent().and_then(Path::file_name);
    let number = name.and_then(|name| name.to_str()?.parse().ok());
    number.unwrap_or(0)
}

/// The number of a user, ours or that of a name.
fn number(kind: &str, user: Option<&str>) -> u32 {
    let output = Command::new("id").arg(kind).args(user).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.trim().parse().unwrap()
}

/// A moment, after which nothing is there yet.
fn pause() -> bool {
    std::thread::sleep(std::time::Duration::from_millis(25));
    false
}
