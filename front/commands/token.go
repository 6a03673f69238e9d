package commands

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"corral/front/cli"
	"corral/front/server"
	"corral/internal/config"
	"corral/internal/text"
	"corral/isolate/client/embed"
)

// tokenHelp is the help text of the command.
const tokenHelp = `corral token manages the tokens of the clients of corral serve, in your configuration, or with sudo in the operator's,
` + config.DefaultPath + `.

Usage:
  corral token create NAME [--repos ID,...] [--tools NAME,...] [--expires TIME] [--config FILE]
                       make a principal with a token, and print the token, this once
  corral token rotate NAME [--grace TIME] [--expires TIME] [--config FILE]
                       make another token for it, and print that, this once. The former one is accepted for the
                       --grace (default 24h; 0 ends it now). Without --expires the new one lives as long as the former
  corral token revoke NAME [--config FILE]
                       remove the principal: none of its tokens is accepted any more
  corral token list [--json] [--config FILE]
                       list the principals that servers accept, and when their tokens expire

TIME is such as 30d, 12h or 90m, at most 3650d. Each principal has a file, principals.d/NAME.yaml beside the configuration
file, with the token's SHA-256. Servers that run notice a change within a second.

Examples:
  sudo corral token create ci --repos app --expires 30d
  sudo corral token rotate ci --grace 2h
`

type tokenOptions struct {
	repos, tools, expires, grace, file string
	json                               bool
	set                                map[string]bool // options that the command line has
}

// tokenAccepts are the options of each command, besides --config.
var tokenAccepts = map[string][]string{
	"create": {"repos", "tools", "expires"}, "rotate": {"grace", "expires"}, "revoke": {}, "list": {"json"},
}

// tokenCommand is `corral token`, which makes, replaces, revokes and lists the tokens of clients.
func tokenCommand(args []string) error {
	o := tokenOptions{set: map[string]bool{}}
	f := flag.NewFlagSet("token", flag.ContinueOnError)
	f.StringVar(&o.repos, "repos", "", "")
	f.StringVar(&o.tools, "tools", "", "")
	f.StringVar(&o.expires, "expires", "", "")
	f.StringVar(&o.grace, "grace", "24h", "")
	f.StringVar(&o.file, "config", "", "")
	f.BoolVar(&o.json, "json", false, "")
	words, err := cli.ParseMixed(f, args, tokenHelp)
	if err != nil {
		return err
	}
	f.Visit(func(one *flag.Flag) { o.set[one.Name] = true })
	if err := o.check(words); err != nil {
		return err
	}
	if words[0] == "list" {
		return o.list()
	}
	return o.change(words[0], words[1])
}

func (o *tokenOptions) check(words []string) error {
	if len(words) == 0 || tokenAccepts[words[0]] == nil {
		return cli.Misused("token", tokenHelp, words)
	}
	want := 2
	if words[0] == "list" {
		want = 1
	}
	if len(words) != want {
		return cli.Misused("token", tokenHelp, words)
	}
	for name := range o.set {
		if name != "config" && !strings.Contains(" "+strings.Join(tokenAccepts[words[0]], " ")+" ", " "+name+" ") {
			return fmt.Errorf("--%s is not an option of corral token %s\nhint: corral token --help", name, words[0])
		}
	}
	return nil
}

// change makes an edit of the configuration.
func (o *tokenOptions) change(verb, name string) error {
	token, change, err := o.edit(verb, name)
	var written string
	if err == nil {
		written, err = editConfig(o.file, change)
	}
	if err = errors.Join(err, embed.Drop()); err != nil {
		return err
	}
	if verb == "revoke" {
		cli.Note("removed " + written + ": servers that run notice within a second")
		return nil
	}
	cli.Note("this token is not shown again; its hash is in " + written)
	return cli.Print(token + "\n")
}

func (o *tokenOptions) edit(verb, name string) (token string, change config.Edit, err error) {
	if verb == "revoke" {
		return "", config.Edit{RemovePrincipal: name}, nil
	}
	var life, grace time.Duration
	if o.set["expires"] {
		if life, err = parseTime("--expires", o.expires, time.Second); err != nil {
			return "", change, err
		}
	}
	token, hash := config.NewToken()
	now := config.At(time.Now())
	if verb == "rotate" {
		grace, err = parseTime("--grace", o.grace, 0)
		return token, config.Edit{Rotate: &config.Rotation{Name: name, Hash: hash, Now: now, Grace: grace, Life: life}}, err
	}
	p := &config.Principal{Name: name, Hash: hash, Created: now, Repos: cli.Separated(o.repos), Tools: cli.Separated(o.tools)}
	if life > 0 {
		p.Expires = now + config.Instant(life/time.Second)
	}
	return token, config.Edit{AddPrincipal: p}, nil
}

// parseTime returns the duration of a text such as 30d or 12h.
func parseTime(option, s string, minimum time.Duration) (time.Duration, error) {
	var d time.Duration
	var err error
	if s != "0" {
		d, err = cli.ParseAge(s)
	}
	if err != nil || d < minimum || d > config.MaxTokenLife {
		return 0, fmt.Errorf("invalid value %q for %s: must be a time such as 30d, 12h or 90m, at most 3650d\nhint: corral token --help", s, option)
	}
	return d, nil
}

// A listedToken is a principal in the output of list --json. Times are absent where there is none.
type listedToken struct {
	Name            string   `json:"name"`
	ID              string   `json:"id"` // the first 12 hex digits of the token's SHA-256
	Created         string   `json:"created,omitempty"`
	Expires         string   `json:"expires,omitempty"`
	Expired         bool     `json:"expired,omitempty"`
	Previous        string   `json:"previousId,omitempty"`
	PreviousExpires string   `json:"previousExpires,omitempty"`
	Repos           []string `json:"repos,omitempty"`
	Tools           []string `json:"tools,omitempty"`
}

func (o *tokenOptions) list() error {
	c, _, err := server.LoadConfig(server.ConfigSources(o.file))
	if err != nil {
		return err
	}
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tID\tCREATED\tEXPIRES\tPREVIOUS\tREPOSITORIES")
	for _, p := range c.Principals {
		l := describeToken(p, time.Now())
		if o.json {
			if err := text.WriteJSON(&out, l, ""); err != nil {
				return err
			}
			continue
		}
		expires, previous, repos := cmp.Or(l.Expires, "never"), "-", "all"
		if l.Expired {
			expires += " (expired)"
		}
		if l.Previous != "" {
			previous = l.Previous + " until " + l.PreviousExpires
		}
		if l.Repos != nil {
			repos = text.Escape(strings.Join(l.Repos, ","))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", l.Name, l.ID, cmp.Or(l.Created, "-"), expires, previous, repos)
	}
	if !o.json {
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return cli.Print(out.String())
}

func describeToken(p config.Principal, now time.Time) listedToken {
	l := listedToken{Name: p.Name, ID: fmt.Sprintf("%x", p.Hash[:6]), Repos: p.Repos, Tools: p.Tools}
	if p.Created != 0 {
		l.Created = p.Created.String()
	}
	if p.Expires != 0 {
		l.Expires, l.Expired = p.Expires.String(), config.At(now) >= p.Expires
	}
	if p.PreviousExpires > config.At(now) {
		l.Previous, l.PreviousExpires = fmt.Sprintf("%x", p.Previous[:6]), p.PreviousExpires.String()
	}
	return l
}
