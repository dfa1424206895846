"""Security settings: contradictions stop the start, dangers are told, secrets are never shown."""

import pytest

from skep.settings import InvalidSettings, Settings, load_settings
from skep.settings.fields import FIELDS, SECRETS
from skep.settings.security import jwt_secret, listed, security_warnings

SECRET = "a secret that is long enough for HS256 tokens"


def load(**variables):
    return load_settings(environment=variables).settings


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"SKEP_JWT_ENABLED": "true"}, "requires jwt_secret"),
        (
            {"SKEP_JWT_ENABLED": "true", "SKEP_JWT_ALGORITHM": "auto"},
            ", jwt_public_key",
        ),
        (
            {"SKEP_JWT_ENABLED": "true", "SKEP_JWT_ALGORITHM": "RS256", "JWT_SECRET": SECRET},
            "requires jwt_jwks_url",
        ),
        ({"JWT_SECRET": "short"}, "at least 32 bytes"),
        ({"JWT_SECRET": "change-me-in-production-please-do"}, "published example"),
        ({"JWT_SECRET": SECRET, "SKEP_JWT_SECRET_FILE": "/etc/hostname"}, "mutually exclusive"),
        ({"SKEP_JWT_SECRET_FILE": "/nowhere"}, "cannot read jwt_secret_file"),
        ({"SKEP_JWT_PUBLIC_KEY_FILE": "/nowhere"}, "cannot read jwt_public_key_file"),
        ({"JWT_JWKS_URL": "file:///etc/passwd"}, "https://"),
        ({"JWT_JWKS_URL": "https:keys"}, "https://"),
        ({"JWT_ROLE_ADMIN": "x", "JWT_ROLE_READ_ONLY": "x"}, "different names"),
        ({"SKEP_TLS_CERTIFICATE": "/c"}, "set together"),
        ({"SKEP_TLS_KEY": "/k"}, "set together"),
        ({"SKEP_TLS_CLIENT_AUTHORITY": "/a"}, "requires tls_certificate"),
        ({"SKEP_CORS_ORIGINS": "*"}, "a wildcard"),
        ({"SKEP_CORS_ORIGINS": "https://*.example.com"}, "a wildcard"),
        ({"SKEP_CORS_ORIGINS": "https://a.example.com/path"}, "without a path"),
        ({"SKEP_ALLOWED_HOSTS": "http://skep.example.com"}, "without scheme or port"),
        ({"SKEP_ALLOWED_HOSTS": "a.example.com, b.example.com:6632"}, "without scheme or port"),
        ({"SKEP_JWT_ENABLED": "maybe"}, "`true` or `false`"),
    ],
)
def test_defect_50_settings_that_guard_nothing_or_contradict_are_refused_by_name(variables, reason):
    with pytest.raises(InvalidSettings, match=reason) as refusal:
        load(**variables)

    assert variables.get("JWT_SECRET", SECRET) not in str(refusal.value)


def test_the_variables_of_queen_are_understood():
    settings = load(
        JWT_ENABLED="true",
        JWT_ALGORITHM="auto",
        JWT_SECRET=SECRET,
        JWT_ISSUER="us",
        JWT_AUDIENCE="skep",
        JWT_CLOCK_SKEW="5",
        JWT_JWKS_URL="https://keys.example.com/jwks.json",
        JWT_JWKS_REFRESH_INTERVAL="60",
        JWT_JWKS_TIMEOUT_MS="2500",
        JWT_ROLES_CLAIM="r",
        JWT_ROLES_ARRAY_CLAIM="rs",
        JWT_ROLE_ADMIN="boss",
        JWT_ROLE_READ_WRITE="worker",
        JWT_ROLE_READ_ONLY="guest",
        JWT_SKIP_PATHS="/health",
    )

    assert settings.jwt_enabled
    assert (settings.jwt_clock_skew_s, settings.jwt_jwks_timeout_s) == (5, 2.5)
    assert (settings.jwt_roles_claim, settings.jwt_role_admin) == ("r", "boss")
    assert settings.jwt_skip_paths == "/health"


def test_a_secret_may_lie_in_a_file(tmp_path):
    (tmp_path / "secret").write_text(SECRET + "\n")

    assert jwt_secret(load(SKEP_JWT_SECRET_FILE=str(tmp_path / "secret"))) == SECRET


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "empty").write_text("\n")

    for variable in ("SKEP_JWT_SECRET_FILE", "SKEP_JWT_PUBLIC_KEY_FILE"):
        with pytest.raises(InvalidSettings, match="is empty"):
            load(**{variable: str(tmp_path / "empty")})


def test_a_list_is_separated_by_commas_and_spaces():
    assert listed(" a,b , c,,") == ("a", "b", "c")
    assert listed(None) == ()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_a_broker_that_only_this_machine_reaches_needs_no_warning(host):
    assert security_warnings(Settings(host=host)) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "skep.example.com"])
def test_a_broker_that_others_reach_and_nobody_guards_is_warned_of(host):
    (warning,) = security_warnings(Settings(host=host))

    assert "AUTHENTICATION IS DISABLED" in warning
    assert host in warning


def test_tokens_in_clear_are_warned_of(tmp_path):
    guarded = Settings(host="10.1.2.3", jwt_enabled=True, jwt_secret=SECRET)
    (warning,) = security_warnings(guarded)
    assert "not encrypted" in warning

    secured = Settings(host="10.1.2.3", jwt_enabled=True, tls_certificate=tmp_path)
    assert security_warnings(secured) == []


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_a_secret_is_not_shown_by_its_settings(name):
    settings = Settings(**{name: SECRET})

    assert SECRET not in repr(settings) + str(settings) + str(settings.printable())
    assert settings.printable()[name] == "***"


def test_the_password_of_the_key_server_is_not_shown():
    settings = Settings(jwt_jwks_url="https://me:hush@keys.example.com")

    assert "hush" not in repr(settings)


def test_settings_that_sound_secret_are_listed_as_secrets_or_are_known_not_to_be():
    sounding = {
        name
        for name in FIELDS
        if any(word in name for word in ("secret", "key", "password", "token"))
    }
    harmless = {
        "encryption_key_file",
        "jwt_secret_file",
        "jwt_public_key",
        "jwt_public_key_file",
        "tls_key",
    }

    # Storage options may hold credentials, whatever they are called.
    assert sounding - harmless == SECRETS - {"archive_storage"}
