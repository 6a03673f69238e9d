/* System calls, memory functions and the end of the process, without a C library.
 *
 * The stub is executed once per job: a static glibc spends 0.35 ms in its start-up code before main (CPU feature
 * detection traps under virtualisation), this file needs none. Numbers and structures come from the kernel's own headers.
 * Every function returns what the kernel returns: a value >= 0, or -errno.
 */
#ifndef CORRAL_RT_H
#define CORRAL_RT_H

#include <stddef.h>
#include <stdint.h>

#include <asm/unistd.h>
#include <linux/errno.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;

#if defined(__x86_64__)
static inline long sys6(long n, long a, long b, long c, long d, long e, long f)
{
	long ret;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	__asm__ volatile("syscall" : "=a"(ret) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return ret;
}
#elif defined(__aarch64__)
static inline long sys6(long n, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
}
#else
#error "corral runs on x86-64 and arm64"
#endif

#define SYS6(n, a, b, c, d, e, f) sys6(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define SYS5(n, a, b, c, d, e) SYS6(n, a, b, c, d, e, 0)
#define SYS4(n, a, b, c, d) SYS5(n, a, b, c, d, 0)
#define SYS3(n, a, b, c) SYS4(n, a, b, c, 0)
#define SYS2(n, a, b) SYS3(n, a, b, 0)
#define SYS1(n, a) SYS2(n, a, 0)
#define SYS0(n) SYS1(n, 0)

/* The compiler may emit calls of these four functions for assignments and loops, whatever the flags. */
void *memset(void *to, int byte, size_t n);
void *memcpy(void *to, const void *from, size_t n);
void *memmove(void *to, const void *from, size_t n);
int memcmp(const void *a, const void *b, size_t n);

/* leave ends this process. */
_Noreturn void leave(int code);

static inline size_t length(const char *s)
{
	size_t n = 0;
	while (s[n])
		n++;
	return n;
}

/* put and put_number append to a string and return its new end: all the formatting that the stub needs. */
static inline char *put(char *at, const char *text)
{
	while (*text)
		*at++ = *text++;
	*at = 0;
	return at;
}

static inline char *put_number(char *at, u64 n)
{
	char digits[20];
	int k = 0;
	do {
		digits[k++] = (char)('0' + n % 10);
		n /= 10;
	} while (n);
	while (k)
		*at++ = digits[--k];
	*at = 0;
	return at;
}

#endif
