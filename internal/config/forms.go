package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"corral/internal/config/strict"
	"corral/job"
	"corral/policy/network"
)

// language returns the forms of values. lookup returns the id of a user's name.
func language(lookup func(name string) (uint32, error)) strict.Language {
	return strict.Language{
		Supervisor: "is for the supervisor, which reads " + DefaultPath + " and no user's file",
		Mappings:   map[reflect.Type]func(any) []strict.Row{reflect.TypeFor[job.Limits](): limitRows},
		Forms: map[string]strict.Form{
			"int":            countForm,
			"count":          countForm,
			"natural":        strict.Number("an integer", integerTags, parseInt(10), decimal),
			"id":             strict.Number("an integer", integerTags, parseInt(0), hexadecimal),
			"size":           sizeForm,
			"cpus":           cpusForm,
			"time.Duration":  timeForm,
			"wait":           strict.Number("a time such as 30s, or 0", timeTags, parseWait, writeTime),
			"version":        versionForm,
			"user":           userForm(lookup),
			"path":           pathForm,
			"etc-path":       strict.Text("a path below /etc such as /etc/acme/client.conf", etcPath),
			"name":           plainNameForm,
			"new-profile":    newProfileForm,
			"profile":        strict.Text("a profile's name", nil),
			"repo-id":        strict.Text("a repository's id: a name of 1 to 128 characters", goodID),
			"tool":           strict.Text("a tool's name such as runtime_execute, without dots", toolName),
			"runtime":        strict.Words("runtime", job.AllRuntimes()...),
			"language":       strict.Words("runtime", job.Runtimes()...),
			"network":        networkForm,
			"program":        strict.Text("a program's name or its absolute path", program),
			"variable":       strict.Text("a variable's name (letters, digits and underscores)", variable),
			"value":          valueForm,
			"hash":           hashForm,
			"config.Instant": instantForm,
			"address":        strict.Text("HOST:PORT such as 127.0.0.1:7070", address),
			"host":           strict.Text("a host's name such as build.example.org (no wildcards)", hostName),
			"origin":         strict.Text("an origin such as https://build.example.org (no wildcards)", origin),
			"image":          strict.Text("the name of a root file system such as debian-12", imageName),
			"collector":      collectorForm,
			"service":        strict.Text("a name of at most 255 bytes", serviceName),
			"traces":         tracesForm(),
			"config.Listen":  wordForm("stdio, unix:///PATH or ws://HOST:PORT", ParseListen),
			"preset":         strict.Words("preset", network.PresetNames()...),
			"host-pattern":   hostPatternForm,
			"method":         checkedForm("a method of requests such as GET", network.CheckMethod),
			"request-path":   checkedForm("a path of requests such as /repos/**", network.CheckPath),
			"secret":         strict.Text("the name of a secret: 1 to 64 letters in lower case, digits, hyphens and underscores", network.IsSecretName),
			"header":         strict.Text("the name of a header such as Authorization", headerName),
			"secret-format":  strict.Text("text with {} once, such as Bearer {}", secretFormat),
			"netip.Prefix":   privateForm,
			"age":            ageForm,
			"job.Workspace":  wordForm("direct, readonly or overlay", job.ParseWorkspace),
			"job.Recording":  wordForm("hash, argv or code", job.ParseRecording),
			"job.Protection": wordForm("none, hooks or all", job.ParseProtection),
		},
	}
}

var (
	integerTags = []string{"!!int"}
	timeTags    = []string{"!!str", "!!int", "!!float"}

	countForm = strict.Number("a positive integer", integerTags, job.ParseCount, decimal)
	sizeForm  = strict.Number("a size such as 512MiB", []string{"!!str", "!!int"}, job.ParseSize, job.FormatSize)
	cpusForm  = strict.Number("a number of CPUs such as 1.5", []string{"!!int", "!!float"}, job.ParseCPUs, job.FormatCPUs)
	timeForm  = strict.Number("a time such as 30s", timeTags, parseTime, writeTime)

	plainNameForm = strict.Text("a name of 1 to 64 letters, digits, dots, dashes and underscores", plainName)
)

// parseInt returns a parser of integers. In base 0 they may have a prefix such as 0x.
func parseInt(base int) func(s string) (int64, error) {
	return func(s string) (int64, error) { return strconv.ParseInt(s, base, 64) }
}

func decimal(n int64) string     { return strconv.FormatInt(n, 10) }
func hexadecimal(n int64) string { return fmt.Sprintf("%#x", n) }
func writeTime(n int64) string   { return time.Duration(n).String() }

func parseTime(s string) (int64, error) {
	d, err := job.ParseDuration(s)
	return int64(d), err
}

func parseWait(s string) (int64, error) {
	if s == "0" || s == "0s" {
		return 0, nil
	}
	return parseTime(s)
}

// wordForm is the form of a type that has its words in package job or here. An empty text, which parse may accept, never gets there.
func wordForm[T fmt.Stringer](what string, parse func(string) (T, error)) strict.Form {
	return strict.Form{
		What:  what,
		Parse: func(s, _ string) (any, error) { return parse(s) },
		Write: func(v any) string { return strict.Quote(v.(T).String()) },
	}
}

// maxUserID is the highest user id. 1<<32-1 stands for "no change" in chown(2).
const maxUserID = 1<<32 - 2

// userForm is the form of a user's name or number.
func userForm(lookup func(name string) (uint32, error)) strict.Form {
	return strict.Form{
		What: "a user's name or number", Tags: []string{"!!int", "!!str"},
		Parse: func(s, tag string) (any, error) {
			if tag == "!!int" {
				id, err := strconv.ParseInt(s, 0, 64)
				if err == nil && (id < 0 || id > maxUserID) {
					err = strict.Mistake(fmt.Sprintf("must be between 0 and %d, got %s", maxUserID, strict.Shown(s)))
				}
				return uint32(id), err
			}
			if s == "" {
				return nil, errors.New("empty")
			}
			id, err := lookup(s)
			if err != nil {
				return nil, strict.Mistake(fmt.Sprintf("unknown user %q", strict.Shorten(s)))
			}
			return id, nil
		},
		Write: func(v any) string { return fmt.Sprint(v) },
	}
}

// pathForm is the form of an absolute, clean path. Whether it exists is not checked.
var pathForm = strict.Form{
	What: "an absolute path",
	Parse: func(s, _ string) (any, error) {
		switch clean := filepath.Clean(s); {
		case !filepath.IsAbs(s) || strings.IndexByte(s, 0) >= 0:
			return nil, errors.New("not an absolute path")
		case clean != s:
			return nil, strict.Mistake(fmt.Sprintf("write %q as %q", strict.Shorten(s), strict.Shorten(clean)))
		}
		return s, nil
	},
	Write: func(v any) string { return strict.Quote(v.(string)) },
}

// etcPath reports whether s is an absolute, clean path below /etc, whose components may be patterns of path.Match.
func etcPath(s string) bool {
	name, ok := strings.CutPrefix(s, "/etc/")
	_, err := path.Match(name, "")
	return ok && name != "" && filepath.Clean(s) == s && strings.IndexByte(s, 0) < 0 && err == nil
}

// maxValue is the maximum number of bytes of a variable's value.
const maxValue = 32 << 10

// valueForm is the form of a variable's value: text, or a number as it is written.
var valueForm = strict.Form{
	What: "text", Tags: []string{"!!str", "!!int", "!!float"},
	Parse: func(s, _ string) (any, error) {
		if len(s) > maxValue || strings.IndexByte(s, 0) >= 0 {
			return nil, strict.Mistake(fmt.Sprintf("must be text without NUL of at most %d bytes", maxValue))
		}
		return s, nil
	},
	Write: func(v any) string { return strict.Quote(v.(string)) },
}

// hashForm is the form of a token's hash. Another text is not repeated in an error: it may be the token.
var hashForm = strict.Form{
	What: "a hash", Tags: []string{"!!str", "!!int", "!!float", "!!null", "!!bool"},
	Parse: func(s, tag string) (any, error) {
		b, err := hex.DecodeString(s)
		if tag != "!!str" || err != nil || len(b) != 32 {
			return nil, strict.Mistake("must be the SHA-256 of a token, 64 hex digits in quotes: see corral config token")
		}
		return [32]byte(b), nil
	},
	Write: func(v any) string { return fmt.Sprintf("\"%x\"", v) },
}

// An Instant is a point in time, in seconds since the Unix epoch; 0 is unset.
type Instant int64

// At returns the instant of t.
func At(t time.Time) Instant { return Instant(t.Unix()) }

// String returns the instant as RFC 3339 has it, in UTC.
func (i Instant) String() string { return time.Unix(int64(i), 0).UTC().Format(time.RFC3339) }

// instantForm is the form of a point in time.
var instantForm = strict.Form{
	What: "a time such as \"2026-12-23T10:00:00Z\" (RFC 3339)", Tags: []string{"!!str", "!!timestamp"},
	Parse: func(s, _ string) (any, error) {
		t, err := time.Parse(time.RFC3339, s)
		if err == nil && t.Unix() <= 0 {
			err = errors.New("before 1970")
		}
		return Instant(t.Unix()), err
	},
	Write: func(v any) string { return strconv.Quote(v.(Instant).String()) },
}

// collectorForm is the form of a collector's URL. Another text is not repeated in an error: it may have a password.
var collectorForm = strict.Form{
	What: "a URL such as http://localhost:4318",
	Parse: func(s, _ string) (any, error) {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return nil, strict.Mistake("must be a URL such as http://localhost:4318 (headers are in headers_file)")
		}
		return s, nil
	},
	Write: func(v any) string { return strict.Quote(v.(string)) },
}

// tracesForm explains why spans cannot go to standard output.
func tracesForm() strict.Form {
	f := strict.Words("", TracesOff, TracesStderr, TracesFile, TracesOTLP)
	f.Parse = func(s, _ string) (any, error) {
		if s == "stdout" {
			return nil, strict.Mistake("standard output belongs to the protocol of a server: write stderr")
		}
		return s, nil
	}
	return f
}

// builtin are the profiles of every configuration. They have system calls and nothing else.
func builtin() []string { return []string{"default", "strict"} }

// newProfileForm is the form of the name that the operator gives a profile.
var newProfileForm = strict.Form{
	What: plainNameForm.What,
	Parse: func(s, tag string) (any, error) {
		if slices.Contains(builtin(), s) {
			return nil, strict.Mistake("the profile always exists and cannot be changed: take another name")
		}
		return plainNameForm.Parse(s, tag)
	},
}

// maxID is the maximum number of characters of a repository's id.
const maxID = 128

func goodID(s string) bool {
	return s != "" && s != "/" && utf8.ValidString(s) && utf8.RuneCountInString(s) <= maxID && !strings.ContainsFunc(s, unicode.IsControl)
}

// plainName returns whether s can be a name anywhere.
func plainName(s string) bool {
	const letters = "._-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return s != "" && len(s) <= 64 && strings.Trim(s, letters) == ""
}

func toolName(s string) bool {
	return len(s) <= 64 && strings.Trim(s, "_abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

func imageName(s string) bool { return job.CheckImageName(s) == nil }

func serviceName(s string) bool { return len(s) <= 255 && !strings.ContainsFunc(s, unicode.IsControl) }

func program(s string) bool {
	base := filepath.Base(s)
	return base != "." && base != ".." && base != "/" && len(s) <= 4096 && !strings.ContainsAny(s, "\x00\n") &&
		(s == base || filepath.IsAbs(s) && filepath.Clean(s) == s)
}

func variable(s string) bool {
	const letters = "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return s != "" && len(s) <= 128 && strings.Trim(s, letters+"0123456789") == "" && strings.ContainsRune(letters, rune(s[0]))
}

// address returns whether s is HOST:PORT. All addresses of the machine are 0.0.0.0 or [::]: nobody leaves these out by mistake.
func address(s string) bool {
	host, port, err := net.SplitHostPort(s)
	number, bad := strconv.ParseUint(port, 10, 16)
	return err == nil && bad == nil && host != "" && strconv.FormatUint(number, 10) == port && hostName(host)
}

// hostName returns whether s is HOST[:PORT] as in requests (RFC 9110, section 7.2).
func hostName(s string) bool {
	return s != "" && len(s) <= 255 && !strings.ContainsAny(s, "/?#@*, \t\r\n\x00")
}

// origin returns whether s is an origin as browsers send it (RFC 6454, section 6.2).
func origin(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && u.Scheme+"://"+u.Host == s && hostName(u.Host)
}

// versionForm is the form of the version of a file. The only version is 1.
var versionForm = strict.Form{
	What: "1", Tags: integerTags,
	Parse: func(s, _ string) (any, error) {
		if s != "1" {
			return nil, errors.New("must be 1")
		}
		return int64(1), nil
	},
	Write: func(v any) string { return fmt.Sprint(v) },
}
