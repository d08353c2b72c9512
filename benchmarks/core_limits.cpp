// What one core can do, for bench_limits.py: each line is a name and the seconds of its best round (of this thread's processor time).
#include <cstdio>
#include <cstring>
#include <ctime>
#include <vector>

static double now() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

template <class Work> static void best(const char *name, Work work) {
    double least = 1e9;
    for (int round = 0; round < 7; round++) {
        double start = now();
        work();
        double seconds = now() - start;
        least = seconds < least ? seconds : least;
    }
    std::printf("%s %.6f\n", name, least);
}

static volatile double sink;

// The midpoint rule as a plain loop, for the compiler to turn into vector instructions.
static double midpoint(int n) {
    double sum = 0, step = 1.0 / n;
    for (int i = 0; i < n; i++) {
        double x = (i + 0.5) * step;
        sum += 4 / (1 + x * x);
    }
    return sum * step;
}

// Multiply-adds that do not wait for one another: 128 sums, kept in registers.
static double multiply_adds(long rounds) {
    double a[128], sum = 0;
    for (int j = 0; j < 128; j++) a[j] = j;
    for (long i = 0; i < rounds; i++)
#pragma GCC unroll 16
        for (int j = 0; j < 128; j++) a[j] = a[j] * 0.999999 + 1e-9;
    for (double x : a) sum += x;
    return sum;
}

int main() {
    best("midpoint 1e8 slices", [] { sink = midpoint(100000000); });
    best("1.28e10 multiply-adds", [] { sink = multiply_adds(100000000); });
    std::vector<double> from(1 << 26, 1.0), to(1 << 26, 2.0);  // 512 MiB each: memory
    best("copy 2^26 doubles", [&] { std::memcpy(to.data(), from.data(), 8L << 26); });
    std::vector<double> near(1 << 15), there(1 << 15);  // 256 KiB each: the core's cache
    best("copy 2^15 doubles 2048 times", [&] {
        for (int i = 0; i < 2048; i++) { std::memcpy(there.data(), near.data(), 8L << 15); near[0] = there[i]; }
    });
}
