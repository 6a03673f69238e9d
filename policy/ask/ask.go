// Package ask reads what a job asks for of the hosts that the operator allows for its repository, as command lines and tools
// take it, and narrows it to what a front-end's policy allows.
//
// What is asked for has the form of job.Spec.Network: "" is everything that the operator's rules allow, "none" nothing, and
// anything else words separated by single blanks: the name of a preset, HOST, or HOST:PORT, where HOST may be *.HOST for all
// names below it. Only corral-egress knows the rules, so a word that this package accepts may be one that no rule allows.
package ask

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"corral/internal/nearest"
	"corral/job"
	"corral/policy/network"
)

// accepted is what errors say of words.
const accepted = "use a preset (%s), HOST, HOST:PORT, or none"

// Parse returns what the texts ask for together: each has words separated by commas or blanks. Without a text, or with empty
// ones, it is "", so a caller for whom an empty text is a mistake must look first.
func Parse(texts ...string) (string, error) {
	var words []string
	size := 0
	for _, s := range texts {
		if size += len(s); size > network.MaxAsk {
			return "", fmt.Errorf("more than %d bytes: name fewer hosts, or *.HOST for all names below one", network.MaxAsk)
		}
		for _, word := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) }) {
			if err := check(word); err != nil {
				return "", err
			}
			if !slices.Contains(words, word) {
				words = append(words, word)
			}
		}
	}
	switch all := strings.Join(words, " "); {
	case len(words) > 1 && slices.Contains(words, job.NoNetwork):
		return "", fmt.Errorf("%q cannot be combined with other words", job.NoNetwork)
	case len(words) > network.MaxAsked:
		return "", fmt.Errorf("%d words, the maximum is %d: use *.HOST for all names below one", len(words), network.MaxAsked)
	case len(all) > network.MaxAsk:
		return "", fmt.Errorf("%d bytes, the maximum is %d: use *.HOST for all names below one", len(all), network.MaxAsk)
	default:
		return all, nil
	}
}

// Into returns the parser of an option that can be repeated: it adds what each asks for to *to. An empty value is refused: it would ask
// for all that the operator allows.
func Into(to *string) func(string) error {
	return func(s string) error {
		more, err := Parse(s)
		switch {
		case err != nil:
			return err
		case more == "":
			return errors.New("must not be empty: use none to reach no host")
		}
		*to, err = Parse(*to, more)
		return err
	}
}

// check returns why a word is none.
func check(word string) error {
	if word == job.NoNetwork || isPreset(word) {
		return nil
	}
	host, port, with := strings.Cut(word, ":")
	if strings.ContainsAny(word, "/@[]") || strings.Count(word, ":") > 1 {
		host, with = word, false
	}
	if isPreset(host) && with {
		return fmt.Errorf("%q: %s is a preset, whose hosts have their own ports: use %s, or the name of a host", word, host, host)
	}
	if near := meant(host); near != "" && !with {
		return fmt.Errorf("%q is not a preset: did you mean %s? A host of this name is %s:443", word, near, word)
	}
	if err := network.CheckHost(host); err != nil {
		return fmt.Errorf("%w; "+accepted, err, strings.Join(network.PresetNames(), ", "))
	}
	if !with {
		return nil
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
		return fmt.Errorf("%.300q: the port must be a number from 1 to 65535", word)
	}
	return nil
}

// programs are names of programs and systems, by which people call what a preset is for.
var programs = map[string]string{
	"pip": "pypi", "python": "pypi", "poetry": "pypi", "uv": "pypi", "conda": "pypi", "node": "npm", "nodejs": "npm", "npmjs": "npm",
	"yarn": "npm", "pnpm": "npm", "rust": "cargo", "crates": "cargo", "golang": "go", "apt": "debian", "apt-get": "debian", "deb": "debian",
	"github": "github-read", "gh": "github-read", "git": "github-read",
}

// meant returns the preset that a word without a dot most likely stands for, "" if there is none.
func meant(word string) string {
	if strings.Contains(word, ".") || programs[word] != "" {
		return programs[word]
	}
	short := func(name string) bool { return len(name) <= 3 } // many words are near to short ones
	return nearest.Of(word, slices.DeleteFunc(network.PresetNames(), short))
}

func isPreset(word string) bool {
	return slices.Contains(network.PresetNames(), word)
}

// Narrow returns what a request may have: what it asks for or, if it asks for all that it may have, maximum. It fails if the request
// asks for more, and names the word. Both are results of Parse.
func Narrow(maximum, asked string) (string, error) {
	switch {
	case maximum == "" || asked == job.NoNetwork:
		return asked, nil
	case asked == "":
		return maximum, nil
	case maximum == job.NoNetwork:
		return "", errors.New("no network access may be requested")
	}
	for _, word := range strings.Fields(asked) {
		if !contains(maximum, word) {
			return "", fmt.Errorf("%s may not be requested, only: %s", word, maximum)
		}
	}
	return asked, nil
}

// Common returns what two maximums have in common.
func Common(a, b string) string {
	switch {
	case a == "" || b == job.NoNetwork:
		return b
	case b == "" || a == job.NoNetwork:
		return a
	}
	var both []string
	for _, lists := range [][2]string{{a, b}, {b, a}} {
		for _, word := range strings.Fields(lists[0]) {
			if contains(lists[1], word) && !slices.Contains(both, word) {
				both = append(both, word)
			}
		}
	}
	if len(both) == 0 {
		return job.NoNetwork
	}
	return strings.Join(both, " ")
}

// contains reports whether everything that word asks for is asked for by one of list's words.
func contains(list, word string) bool {
	return slices.ContainsFunc(strings.Fields(list), func(maximum string) bool { return covers(maximum, word) })
}

// covers reports whether maximum asks for everything that word asks for. A preset and its hosts are different words: which hosts it
// has is for the rules to say.
func covers(maximum, word string) bool {
	if maximum == word {
		return true
	}
	if isPreset(maximum) || isPreset(word) {
		return false
	}
	maxHost, maxPort, _ := strings.Cut(maximum, ":")
	host, port, _ := strings.Cut(word, ":")
	if maxPort != "" && maxPort != port {
		return false
	}
	below, wild := strings.CutPrefix(maxHost, "*")
	return maxHost == host || wild && strings.HasSuffix(host, below) && len(host) > len(below)
}
