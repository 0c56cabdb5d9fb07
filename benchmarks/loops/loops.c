/* Loops and their adjoints by hand, on one core: `NAME(n, arguments, y)` is the loop and
   `NAME_gradient(n, arguments, w, cotangents)` the gradient of half the weighted sum of squares of its result. */

#include <stdlib.h>
#include <string.h>

void linear(long n, const float *a, const float *x, float *h) {
    float last = 0.0f;
    for (long t = 0; t < n; t++) h[t] = last = a[t] * last + x[t];
}

void linear_gradient(long n, const float *a, const float *x, const float *w, float *a_bar, float *x_bar) {
    float *h = malloc(n * sizeof(float)), bar = 0.0f;
    linear(n, a, x, h);
    for (long t = n - 1; t >= 0; t--) {
        bar += w[t] * h[t];
        a_bar[t] = t ? bar * h[t - 1] : 0.0f;
        x_bar[t] = bar;
        bar *= a[t];
    }
    free(h);
}

void shortest_paths(long n, const float *given, float *d) {
    memcpy(d, given, n * n * sizeof(float));
    for (long k = 0; k < n; k++)
        for (long i = 0; i < n; i++)
            for (long j = 0; j < n; j++) {
                float through = d[i * n + k] + d[k * n + j];
                if (through < d[i * n + j]) d[i * n + j] = through;
            }
}

/* Of each step it is kept whether the way through k was shorter. */
void shortest_paths_gradient(long n, const float *given, const float *w, float *bar) {
    float *d = malloc(n * n * sizeof(float));
    unsigned char *shorter = malloc(n * n * n);
    memcpy(d, given, n * n * sizeof(float));
    for (long k = 0; k < n; k++)
        for (long i = 0; i < n; i++)
            for (long j = 0; j < n; j++) {
                float old = d[i * n + j], through = d[i * n + k] + d[k * n + j];
                shorter[(k * n + i) * n + j] = through < old;
                d[i * n + j] = through < old ? through : old;
            }
    for (long i = 0; i < n * n; i++) bar[i] = w[i] * d[i];
    for (long k = n - 1; k >= 0; k--)
        for (long i = n - 1; i >= 0; i--)
            for (long j = n - 1; j >= 0; j--) {
                if (!shorter[(k * n + i) * n + j]) continue;
                float passed = bar[i * n + j];
                bar[i * n + j] = 0.0f;
                bar[i * n + k] += passed;
                bar[k * n + j] += passed;
            }
    free(d);
    free(shorter);
}
