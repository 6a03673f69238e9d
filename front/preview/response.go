package preview

import (
	"net/http"
	"strings"
)

// final is an http.ResponseWriter without informational responses: they are sent before clean sees any header.
type final struct{ http.ResponseWriter }

// Unwrap is for http.ResponseController.
func (f final) Unwrap() http.ResponseWriter { return f.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (f final) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		f.ResponseWriter.WriteHeader(status)
	}
}

// clean changes a response of a server in a session: its cookies are for its own host name, and never ours. What would apply to
// more than this origin, or outlast the session, is removed.
func clean(r *http.Response) error {
	var cookies []string
	for _, line := range r.Header.Values("Set-Cookie") {
		parts := strings.Split(line, ";")
		name, _, _ := strings.Cut(parts[0], "=")
		if strings.EqualFold(strings.TrimSpace(name), cookieName) {
			continue
		}
		kept := parts[:1]
		for _, attribute := range parts[1:] {
			if key, _, _ := strings.Cut(attribute, "="); !strings.EqualFold(strings.TrimSpace(key), "domain") {
				kept = append(kept, attribute)
			}
		}
		cookies = append(cookies, strings.Join(kept, ";"))
	}
	r.Header.Del("Set-Cookie")
	if len(cookies) > 0 {
		r.Header["Set-Cookie"] = cookies
	}
	for _, name := range removed() {
		r.Header.Del(name)
	}
	confine(r.Header, r.Request.Host)
	r.Header.Set("Cache-Control", "no-store")
	r.Header.Set("Cross-Origin-Resource-Policy", "same-origin")
	return nil
}

// removed returns the headers of responses that apply to more than their origin, outlast the session, or have a browser send
// requests that no policy restricts.
func removed() []string {
	return []string{
		"Alt-Svc", "Clear-Site-Data", "Strict-Transport-Security", "Public-Key-Pins", "Report-To", "Reporting-Endpoints", "NEL",
		"Content-Security-Policy-Report-Only", "Speculation-Rules",
	}
}

// confine restricts what a page of a response may have a browser do: it loads from, and connects to, its own origin alone. Otherwise
// each page could use a person's browser to reach what its session does not: the servers of this machine, whose loopback interface is
// the browser's, and the Internet. A browser obeys each of several policies, so the server's own one can only restrict more.
func confine(h http.Header, host string) {
	policies := unreported(h.Values("Content-Security-Policy"))
	h["Content-Security-Policy"] = append(policies, "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; "+
		"connect-src 'self' ws://"+host+" data: blob:; object-src 'none'; form-action 'self'; frame-ancestors 'self'; webrtc 'block'")
	h.Set("Cross-Origin-Opener-Policy", "same-origin") // windows of other sites and this page have no handles of each other
	h.Set("X-Dns-Prefetch-Control", "off")
}

// unreported returns policies without their directives that have a browser report violations to a URL: no policy restricts such
// requests. Policies are separated by commas, directives by semicolons, and no directive's value contains either (CSP3, 2.2).
func unreported(policies []string) (kept []string) {
	for _, list := range policies {
		for policy := range strings.SplitSeq(list, ",") {
			var directives []string
			for one := range strings.SplitSeq(policy, ";") {
				words := strings.Fields(one)
				if len(words) > 0 && !strings.EqualFold(words[0], "report-uri") && !strings.EqualFold(words[0], "report-to") {
					directives = append(directives, one)
				}
			}
			if len(directives) > 0 {
				kept = append(kept, strings.Join(directives, ";"))
			}
		}
	}
	return kept
}
