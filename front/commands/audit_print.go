package commands

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"time"

	"corral/internal/text"
	"corral/store/audit"
)

// print writes one record as text or JSON.
func (o *auditOptions) print(w io.Writer, r *audit.Record, text []byte) error {
	if !o.json {
		text = []byte(audit.Format(r))
	}
	_, err := w.Write(append(text[:len(text):len(text)], '\n'))
	return err
}

// each calls use for the records that the filter selects, from the file with the record from on. A damaged record is reported
// and skipped: finding damage is the task of verify.
func (o *auditOptions) each(lines iter.Seq2[*audit.Line, error], use func(audit.Found) error) error {
	for l, err := range lines {
		if err != nil {
			return err
		}
		record, err := l.Record()
		if err != nil {
			reportDamage(err)
			continue
		}
		for _, found := range o.filter.Add(record, l.Text) {
			if err := use(found); err != nil {
				return err
			}
		}
	}
	return nil
}

// reportDamage reports a line that is not a record.
func reportDamage(err error) {
	fmt.Fprintf(os.Stderr, "corral: %s\nhint: corral audit verify\n", text.Escape(err.Error()))
}

// printed prints the records from the file with the record from on for which want returns true, and returns their number.
func (o *auditOptions) printed(r *audit.Reader, from uint64, want func(*audit.Record) bool) (int, error) {
	out, n := bufio.NewWriter(os.Stdout), 0
	err := o.each(r.Lines(from), func(x audit.Found) error {
		if !want(x.Record) {
			return nil
		}
		n++
		return o.print(out, x.Record, x.Text)
	})
	return n, errors.Join(err, out.Flush())
}

// followPause is the time between two looks for new records.
const followPause = 200 * time.Millisecond

func (o *auditOptions) tail(r *audit.Reader, _ string) error {
	if err := o.last(r); err != nil || !o.follow {
		return err
	}
	if err := o.each(r.Follow(followPause), func(x audit.Found) error { return o.print(os.Stdout, x.Record, x.Text) }); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "corral: the log continues in another file: run this again to follow it")
	return nil
}

// last prints the last records that the filter selects.
func (o *auditOptions) last(r *audit.Reader) error {
	count := max(0, o.count)
	if o.filter.All() { // the log may be large, and need not be read
		first := uint64(1)
		if n := uint64(count); n < r.Last() {
			first = r.Last() - n + 1
		}
		_, err := o.printed(r, first, func(x *audit.Record) bool { return x.Seq >= first })
		return err
	}
	var list []audit.Found
	err := o.each(r.Lines(0), func(x audit.Found) error {
		if len(list) > 2*count { // not at each record: the others are moved
			list = slices.Delete(list, 0, len(list)-count)
		}
		list = append(list, audit.Found{Record: x.Record, Text: slices.Clone(x.Text)})
		return nil
	})
	for _, x := range list[max(0, len(list)-count):] {
		err = errors.Join(err, o.print(os.Stdout, x.Record, x.Text))
	}
	return err
}

func (o *auditOptions) export(r *audit.Reader, _ string) error {
	_, err := o.printed(r, 0, func(*audit.Record) bool { return true })
	return err
}
