// What every client of a request is told: where it connects, and as whom.

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;

final class Settings {
    private Settings() {}

    static Map<String, Object> of(JsonNode at) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", at.get("bootstrap").asText());
        settings.put("default.api.timeout.ms", 60_000);
        String ca = Driver.text(at, "ca");
        String mechanism = Driver.text(at, "mechanism");
        String security = (mechanism == null ? "" : "SASL_") + (ca == null ? "PLAINTEXT" : "SSL");
        settings.put("security.protocol", security);
        if (ca != null) {
            settings.put("ssl.truststore.type", "PEM");
            settings.put("ssl.truststore.location", ca);
        }
        if (mechanism != null) {
            settings.put("sasl.mechanism", mechanism);
            settings.put("sasl.jaas.config", jaas(at, mechanism));
            if (at.hasNonNull("token_url")) {
                String url = at.get("token_url").asText();
                // Java asks nobody for tokens whom its operator did not name.
                System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", url);
                settings.put("sasl.oauthbearer.token.endpoint.url", url);
                settings.put("sasl.login.callback.handler.class",
                    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler");
            } else if (mechanism.equals("OAUTHBEARER")) {
                settings.put("sasl.login.callback.handler.class", "Bearer");
                // A token is renewed when half of its life is over, however short that is.
                settings.put("sasl.login.refresh.window.factor", 0.5);
                settings.put("sasl.login.refresh.window.jitter", 0.0);
                settings.put("sasl.login.refresh.min.period.seconds", (short) 0);
                settings.put("sasl.login.refresh.buffer.seconds", (short) 0);
            }
        }
        return settings;
    }

    private static String jaas(JsonNode at, String mechanism) {
        if (mechanism.equals("PLAIN")) {
            return "org.apache.kafka.common.security.plain.PlainLoginModule required username=\""
                + Driver.text(at, "user") + "\" password=\"" + Driver.text(at, "secret") + "\";";
        }
        var jaas = new StringBuilder("org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required");
        if (at.hasNonNull("token_url")) {
            jaas.append(" clientId=\"worker\" clientSecret=\"hidden\"");
        }
        for (String name : new String[] {"secret", "secret_file"}) {
            if (at.hasNonNull(name) && !at.hasNonNull("token_url")) {
                jaas.append(' ').append(name).append("=\"").append(at.get(name).asText()).append('"');
            }
        }
        at.path("extensions").properties().forEach(one ->
            jaas.append(" extension_").append(one.getKey()).append("=\"").append(one.getValue().asText()).append('"'));
        return jaas.append(';').toString();
    }
}
