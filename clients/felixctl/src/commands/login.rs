//! `login` and `logout`.

use std::path::{Path, PathBuf};

use felix_auth::Audience;

use super::{App, whoami};
use crate::cli::{Connection, Login};
use crate::contexts::{Contexts, Taken};
use crate::credentials::{Credentials, Person, Store};
use crate::exit::{Exit, Failure};
use crate::settings::Settings;
use crate::sign_in::{Chosen, CodeFlow, DeviceFlow, Provider, SignIn, open_browser};

/// Name of the context that a first sign-in makes when nobody names one.
const FIRST_CONTEXT: &str = "default";
/// Both doors of an installation; a token is good at one of them.
const AUDIENCES: [Audience; 2] = [Audience::Broker, Audience::ControlPlane];

/// What a sign-in is about to do.
struct Plan {
    file: PathBuf,
    contexts: Contexts,
    settings: Settings,
    sign_in: SignIn,
    store: Store,
}

pub(super) async fn login(app: &App, args: Login) -> Result<(), Failure> {
    let plan = Plan::make(app, &args)?;
    let exchange = app.exchange(&plan.settings)?;
    let chosen = ask_provider(app, &plan.sign_in, &args).await?;
    let mut kept = Credentials::new(&exchange.controlplane_url, &exchange.tenant);
    kept.person = Person {
        issuer: Some(plan.sign_in.issuer.clone()),
        subject: chosen.claims.text("sub").map(ToOwned::to_owned),
        name: chosen.claims.name().map(ToOwned::to_owned),
    };
    let mut refused = None;
    for audience in AUDIENCES {
        match exchange.exchange(&chosen.token, audience).await {
            Ok(issued) => kept.keep(audience, issued),
            // A person with rights at one of the two doors is signed in.
            Err(failure) if failure.exit == Exit::Refused => refused = Some(failure),
            Err(failure) => return Err(failure),
        }
    }
    if let (true, Some(failure)) = (kept.tokens.is_empty(), refused) {
        return Err(explain_refusal(failure, &plan.sign_in, &chosen));
    }
    {
        let _locked = plan.store.lock().await?;
        plan.store.save(&kept)?;
    }
    plan.contexts.save(&plan.file)?;
    let name = kept
        .person
        .name
        .as_deref()
        .or(kept.person.subject.as_deref());
    app.output.say(&format!(
        "You are signed in as {}.",
        name.unwrap_or("somebody")
    ))?;
    whoami::show(app, &plan.settings).await
}

impl Plan {
    /// Everything that can be wrong on this side is found before the person is sent to the
    /// browser.
    fn make(app: &App, args: &Login) -> Result<Self, Failure> {
        let file = app.config_file()?;
        let mut contexts = Contexts::load(&file)?;
        let named = app
            .global
            .context
            .clone()
            .or_else(|| contexts.current.clone());
        let name = named.unwrap_or_else(|| FIRST_CONTEXT.to_owned());
        let mut connection = contexts.contexts.get(&name).cloned().unwrap_or_default();
        let sign_in = remembered(connection.sign_in.take(), args)?;
        remember(
            &mut connection,
            app.given.only_flags(&app.global.connection),
        );
        connection.sign_in = Some(sign_in.clone());
        contexts.add(&name, connection, Taken::Replace)?;
        let settings = Settings::resolve(
            &app.given,
            app.global.connection.clone(),
            &contexts,
            Some(&name),
        )?;
        let store = Store::beside(&file, &name);
        Ok(Self {
            file,
            contexts,
            settings,
            sign_in,
            store,
        })
    }
}

/// What is asked for now, and what was remembered for the rest. Another issuer is another matter:
/// nothing of the old one is taken over.
fn remembered(before: Option<SignIn>, args: &Login) -> Result<SignIn, Failure> {
    let before = before.filter(|before| {
        args.issuer
            .as_ref()
            .is_none_or(|issuer| *issuer == before.issuer)
    });
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let missing = |what: &str, flag: &str| {
        Failure::usage(format!("nothing says {what}")).with_hint(format!(
            "give {flag} once; the context remembers it. Without an identity provider, see `felixctl service-account create`"
        ))
    };
    let issuer = args.issuer.clone();
    let issuer = issuer.or_else(|| before.as_ref().map(|it| it.issuer.clone()));
    let client_id = args.client_id.clone();
    let client_id = client_id.or_else(|| before.as_ref().map(|it| it.client_id.clone()));
    let secret = args.client_secret_file.as_ref().map(absolute);
    let old = before.as_ref();
    Ok(SignIn {
        issuer: issuer.ok_or_else(|| missing("which identity provider to use", "--issuer"))?,
        client_id: client_id
            .ok_or_else(|| missing("what felixctl is called there", "--client-id"))?,
        client_secret_file: secret.or_else(|| old.and_then(|it| it.client_secret_file.clone())),
        scope: args
            .scope
            .clone()
            .or_else(|| old.and_then(|it| it.scope.clone())),
        audience: args
            .audience
            .clone()
            .or_else(|| old.and_then(|it| it.audience.clone())),
        redirect: args
            .redirect
            .clone()
            .or_else(|| old.and_then(|it| it.redirect.clone())),
        exchange: args.exchange.or_else(|| old.and_then(|it| it.exchange)),
    })
}

/// Connection flags given to `login` belong to the context, too; tokens do not, the sign-in takes
/// their place.
fn remember(connection: &mut Connection, flags: Connection) {
    fn over<T>(kept: &mut Option<T>, flag: Option<T>) {
        if flag.is_some() {
            *kept = flag;
        }
    }
    over(&mut connection.brokers, flags.brokers);
    over(&mut connection.tenant, flags.tenant);
    over(&mut connection.namespace, flags.namespace);
    over(&mut connection.controlplane_url, flags.controlplane_url);
    over(
        &mut connection.controlplane_ca_file,
        flags.controlplane_ca_file,
    );
    over(&mut connection.ca_file, flags.ca_file);
    over(&mut connection.client_cert_file, flags.client_cert_file);
    over(&mut connection.client_key_file, flags.client_key_file);
    over(&mut connection.server_name, flags.server_name);
    over(&mut connection.broker_admin_url, flags.broker_admin_url);
}

async fn ask_provider(app: &App, sign_in: &SignIn, args: &Login) -> Result<Chosen, Failure> {
    let secret: Option<&Path> = sign_in.client_secret_file.as_deref();
    let provider =
        Provider::discover(&sign_in.issuer, &sign_in.client_id, secret, app.timeout()).await?;
    let tokens = if args.device {
        let flow = DeviceFlow::begin(&provider, sign_in).await?;
        let device = &flow.device;
        match device.complete_page() {
            Some(page) => eprintln!(
                "Open this page on any machine, and compare the code {}:\n\n  {page}\n",
                device.user_code()
            ),
            None => eprintln!(
                "Open this page on any machine and type the code {}:\n\n  {}\n",
                device.user_code(),
                device.page()
            ),
        }
        let tokens = flow.tokens(sign_in).await?;
        tokens.check(&provider, None)?;
        tokens
    } else {
        let flow = CodeFlow::begin(&provider, sign_in).await?;
        if !args.no_browser && open_browser(flow.url()) {
            eprintln!(
                "Your browser is asked to open this page:\n\n  {}\n",
                flow.url()
            );
        } else {
            eprintln!(
                "Open this page in the browser of this machine:\n\n  {}\n",
                flow.url()
            );
        }
        flow.tokens(sign_in).await?
    };
    tokens.choose(sign_in.upstream())
}

/// A first sign-in is mostly refused because nobody has given the person any right yet; whoever
/// can must know for whom.
fn explain_refusal(failure: Failure, sign_in: &SignIn, chosen: &Chosen) -> Failure {
    if !failure.message.contains("no permissions") {
        return failure
            .with_hint("`felixctl idp ls` shows whom the tenant trusts, and for which audiences");
    }
    let principal = chosen
        .claims
        .text("sub")
        .map(|subject| whoami::principal_id(&sign_in.issuer, subject));
    Failure {
        message: "you are known, and no role gives you any right yet".to_owned(),
        ..failure
    }
    .with_hint(format!(
        "an administrator can give you a role: felixctl rbac grouping add {} ROLE",
        principal.as_deref().unwrap_or("PRINCIPAL")
    ))
}

pub(super) async fn logout(app: &App) -> Result<(), Failure> {
    let settings = app.settings()?;
    let store = app.store(&settings)?;
    let _locked = store.lock().await?;
    // What cannot be understood is forgotten all the same; that is what was asked for.
    let kept = store.load().ok().flatten();
    let there = store.remove()?;
    let Some(kept) = kept else {
        return Ok(app.output.say(if there {
            "the tokens are forgotten"
        } else {
            "you were not signed in"
        })?);
    };
    let exchange = app.exchange(&settings)?;
    for issued in kept.tokens.values() {
        if let Some(token) = &issued.refresh_token {
            exchange.end(token).await.map_err(|failure| Failure {
                message: format!(
                    "the tokens are forgotten here, but the session could not be ended: {}",
                    failure.message
                ),
                ..failure
            })?;
        }
    }
    Ok(app
        .output
        .say("you are signed out, and your session has ended")?)
}
