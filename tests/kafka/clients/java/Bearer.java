// Gives the login module the token that stands in its options, or in a file that somebody else renews.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.auth.SaslExtensions;
import org.apache.kafka.common.security.auth.SaslExtensionsCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

public final class Bearer implements AuthenticateCallbackHandler {
    private final Map<String, String> options = new HashMap<>();

    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
        entries.get(0).getOptions().forEach((name, value) -> options.put(name, String.valueOf(value)));
    }

    @Override
    public void handle(Callback[] callbacks) throws IOException {
        for (Callback callback : callbacks) {
            if (callback instanceof OAuthBearerTokenCallback wanted) {
                wanted.token(token());
            } else if (callback instanceof SaslExtensionsCallback wanted) {
                wanted.extensions(extensions());
            }
        }
    }

    private SaslExtensions extensions() {
        Map<String, String> given = new HashMap<>();
        options.forEach((name, value) -> {
            if (name.startsWith("extension_")) {
                given.put(name.substring("extension_".length()), value);
            }
        });
        return new SaslExtensions(given);
    }

    private OAuthBearerToken token() throws IOException {
        String file = options.get("secret_file");
        String text = file == null ? options.get("secret") : Files.readString(Path.of(file)).strip();
        JsonNode claims = new ObjectMapper().readTree(Base64.getUrlDecoder().decode(text.split("\\.")[1]));
        return new Token(text, claims.get("iat").asLong() * 1000, claims.get("exp").asLong() * 1000,
            claims.get("sub").asText());
    }

    private record Token(String value, long start, long lifetimeMs, String principalName) implements OAuthBearerToken {
        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public Long startTimeMs() {
            return start;
        }
    }

    @Override
    public void close() {}
}
