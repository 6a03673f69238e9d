package relay

import (
	"net/http"
	"slices"
	"strings"
)

// clientHeaders are the headers of requests that clients send to many servers or to a well-known service, and for which no server takes
// another method or path: a name in lower case, or with a hyphen at its end all that begin with it. The lists name who sends them.
var clientHeaders = []string{
	// HTTP (RFC 9110, 9111, 9530, 9421), browsers and the Fetch standard.
	"accept", "accept-", "access-control-request-", "authorization", "cache-control", "connection", "content-", "cookie", "date", "digest",
	"dnt", "early-data", "expect", "from", "host", "idempotency-key", "if-", "keep-alive", "last-event-id", "max-forwards", "mime-version",
	"origin", "pragma", "prefer", "priority", "range", "referer", "repr-digest", "sec-", "signature", "signature-input", "te", "time-zone",
	"transfer-encoding", "upgrade", "upgrade-insecure-requests", "user-agent", "via", "want-content-digest", "want-repr-digest",
	"x-requested-with",
	// Credentials.
	"api-key", "apikey", "api-token", "deploy-token", "job-token", "private-token", "x-api-key", "x-api-token", "x-auth-key", "x-auth-token",
	"x-access-token", "x-csrf-token", "x-csrftoken", "x-xsrf-token",
	// Traces: W3C, OpenTelemetry, B3, Sentry, Datadog, clouds; ids of requests.
	"b3", "baggage", "sentry-trace", "traceparent", "tracestate", "uber-trace-id", "x-amzn-trace-id", "x-b3-", "x-client-request-id",
	"x-cloud-trace-context", "x-correlation-id", "x-datadog-", "x-request-id", "x-trace-id",
	// git and git-lfs; go; npm, pnpm and yarn; bundler and gem; NuGet; docker and OCI; Artifactory.
	"disable-module-fetch", "docker-", "git-protocol", "lfs-", "npm-", "oci-", "otp", "pacote-", "x-artifactory-", "x-checksum-",
	"x-gemfile-source", "x-jfrog-", "x-nuget-", "x-registry-auth", "x-spiferack",
	// APIs of forges: GitHub, GitLab, Gitea, Atlassian.
	"graphql-features", "x-atlassian-token", "x-gh-", "x-gitea-", "x-github-", "x-gitlab-",
	// APIs of models: OpenAI, Anthropic, Google, Azure, Hugging Face, OpenRouter; MCP.
	"anthropic-", "chatgpt-account-id", "conversation-id", "helicone-", "http-referer", "mcp-", "openai-", "originator", "session-id",
	"version", "x-app", "x-claude-", "x-codex-", "x-goog-", "x-hf-", "x-stainless-", "x-title",
	// Clouds and their SDKs: AWS, Azure, Cloudflare; gRPC, Connect, Twirp, SOAP, GraphQL.
	"amz-sdk-", "apollo-", "apollographql-", "cf-access-", "connect-", "grpc-", "soapaction", "twirp-version", "x-amz-", "x-apollo-",
	"x-auth-email", "x-grpc-", "x-ms-",
	// Other services.
	"accept-profile", "circle-token", "dd-", "intercom-version", "kbn-", "notion-version", "stripe-", "x-client-info", "x-consul-",
	"x-figma-token", "x-grafana-", "x-sentry-", "x-shopify-", "x-supabase-", "x-terraform-", "x-tfe-", "x-vault-",
}

// isClientHeader reports whether a header is one of clientHeaders.
func isClientHeader(name string) bool {
	name = hyphened(name)
	return slices.ContainsFunc(clientHeaders, func(one string) bool {
		return name == one || strings.HasSuffix(one, "-") && strings.HasPrefix(name, one)
	})
}

// hyphened returns the name of a header as servers compare it: in lower case, and many read an underscore as a hyphen.
func hyphened(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// overriding returns the name of a header that has a server take another method or path than those that were checked, "" if there is none.
// Others, which only some servers have, are not client headers.
func overriding(header http.Header) string {
	for name := range header {
		switch n := hyphened(name); {
		case slices.Contains([]string{
			"x-http-method-override", "x-http-method", "x-method-override", "x-original-method", "x-forwarded-method", "x-original-url",
			"x-original-uri", "x-original-path", "x-rewrite-url", "x-rewrite-uri", "x-forwarded-uri", "x-forwarded-path", "x-forwarded-prefix",
			"x-envoy-original-path", "x-envoy-original-method",
		}, n), strings.HasSuffix(n, "-copy-source"), strings.HasSuffix(n, "-rename-source"):
			return name
		}
	}
	return ""
}

// strip removes headers that are neither client headers nor on each of the lists, and returns their names.
func strip(header http.Header, lists [][]string) (dropped []string) {
	for name := range header {
		missing := slices.ContainsFunc(lists, func(list []string) bool {
			return !slices.ContainsFunc(list, func(one string) bool { return strings.EqualFold(one, name) })
		})
		if missing && !isClientHeader(name) {
			delete(header, name)
			dropped = append(dropped, name)
		}
	}
	slices.Sort(dropped)
	return dropped
}
