// Direct preference optimization from the contract alone: no SDK and no C library, only the bindings that the public
// generator makes of `wit/`.
//
// r = log π(y) − log π_ref(y) for each answer; the loss of a pair is a function of Δ = r(chosen) − r(rejected).

#include "method.h"

#include <string.h>

// What the method says about itself; `tunebox build` puts it where the host reads it.
__asm__(".section \".custom_section.tunebox:manifest\",\"\",@\n.incbin \"manifest.json\"\n.text\n");

typedef tunebox_method_tensor_own_tensor_t tensor;
typedef tunebox_method_types_error_t refusal;

static double beta = 0.1;
static bool hinge = false;

// The tensors of a step. They are given back together, when the step is done.
static tensor made[32];
static size_t count;

// What the host said to the call that failed.
static refusal refused;

// A tensor as an operand.
static tunebox_method_tensor_borrow_tensor_t lent(tensor own) { return tunebox_method_tensor_borrow_tensor(own); }

static tensor kept(tensor own) {
    if (count == sizeof made / sizeof *made) __builtin_trap();
    return made[count++] = own;
}

// A call of the host that may be refused; a refusal ends the function that makes it.
#define TRY(call) \
    if (!(call)) return false

// The same for one that gives a tensor, which is kept until the step is done.
#define MAKE(name, function, ...)                        \
    tensor name;                                         \
    TRY(function(__VA_ARGS__, &name, &refused));         \
    kept(name)

static method_string_t text(const char *words) {
    return (method_string_t){(uint8_t *)words, strlen(words)};
}

// log p of each row's targets together: [rows].
static bool sum_of_targets(tunebox_method_model_own_scores_t scores, tensor *sum) {
    int32_t axis = 1;
    tensor logprob = kept(tunebox_method_model_method_scores_logprob(tunebox_method_model_borrow_scores(scores)));
    MAKE(total, tunebox_method_tensor_method_tensor_sum, lent(logprob), &axis, false);
    *sum = total;
    tunebox_method_model_scores_drop_own(scores);
    return true;
}

// How much likelier the policy finds the answers of a side than the reference does: [rows].
static bool ratio(tunebox_method_data_borrow_batch_t batch, const char *name, tensor *ratio) {
    method_string_t side = text(name);
    tunebox_method_data_own_rows_t rows;
    tunebox_method_model_own_view_t view;
    tunebox_method_model_own_scores_t scores;
    tensor policy, frozen;

    TRY(tunebox_method_data_method_batch_rows(batch, &side, &rows, &refused));
    tunebox_method_data_borrow_rows_t answers = tunebox_method_data_borrow_rows(rows);
    TRY(tunebox_method_model_score_for_learning(answers, NULL, 1.0f, &scores, &refused));
    TRY(sum_of_targets(scores, &policy));
    TRY(tunebox_method_model_reference(&view, &refused));
    TRY(tunebox_method_model_score(tunebox_method_model_borrow_view(view), answers, NULL, 1.0f, &scores, &refused));
    TRY(sum_of_targets(scores, &frozen));
    MAKE(difference, tunebox_method_tensor_subtract, lent(policy), lent(frozen));

    *ratio = difference;
    tunebox_method_model_view_drop_own(view);
    tunebox_method_data_rows_drop_own(rows);
    return true;
}

// The loss of each pair from βΔ: [rows].
static bool cost(tensor margin, tensor *cost) {
    if (hinge) {
        MAKE(negative, tunebox_method_tensor_method_tensor_scale, lent(margin), -1.0);
        MAKE(short_of_one, tunebox_method_tensor_method_tensor_add_scalar, lent(negative), 1.0);
        MAKE(loss, tunebox_method_tensor_method_tensor_relu, lent(short_of_one));
        *cost = loss;
    } else {
        MAKE(likely, tunebox_method_tensor_method_tensor_log_sigmoid, lent(margin));
        MAKE(loss, tunebox_method_tensor_method_tensor_negate, lent(likely));
        *cost = loss;
    }
    return true;
}

static bool learn(tunebox_method_data_borrow_batch_t batch) {
    tensor chosen, rejected, each;
    TRY(ratio(batch, "chosen", &chosen));
    TRY(ratio(batch, "rejected", &rejected));
    MAKE(difference, tunebox_method_tensor_subtract, lent(chosen), lent(rejected));
    MAKE(margin, tunebox_method_tensor_method_tensor_scale, lent(difference), beta);
    TRY(cost(margin, &each));
    MAKE(sum, tunebox_method_tensor_method_tensor_sum, lent(each), NULL, false);
    MAKE(loss, tunebox_method_tensor_method_tensor_scale, lent(sum), 1.0 / tunebox_method_data_method_batch_window_size(batch));
    TRY(tunebox_method_learn_backward(lent(loss), &refused));

    method_string_t name = text("loss");
    return tunebox_method_run_add_metric_of(&name, lent(loss), &refused);
}

bool exports_tunebox_method_training_init(exports_tunebox_method_training_list_setting_t *settings, method_string_t *message) {
    (void)message;
    for (size_t at = 0; at < settings->len; at++) {
        exports_tunebox_method_training_setting_t *setting = &settings->ptr[at];
        if (setting->f1.tag == TUNEBOX_METHOD_TYPES_VALUE_NUMBER) beta = setting->f1.val.number;
        if (setting->f1.tag == TUNEBOX_METHOD_TYPES_VALUE_TEXT) {
            hinge = setting->f1.val.text.len == 5 && memcmp(setting->f1.val.text.ptr, "hinge", 5) == 0;
        }
    }
    exports_tunebox_method_training_list_setting_free(settings);
    return true;
}

bool exports_tunebox_method_training_step(exports_tunebox_method_training_borrow_batch_t batch, method_string_t *message) {
    bool learnt = learn(batch);
    while (count) tunebox_method_tensor_tensor_drop_own(made[--count]);
    tunebox_method_data_batch_drop_borrow(batch);
    if (!learnt) *message = refused.message;
    return learnt;
}

bool exports_tunebox_method_training_finish(method_string_t *message) {
    (void)message;
    return true;
}

void exports_tunebox_method_training_save_state(method_list_u8_t *state) { *state = (method_list_u8_t){0}; }

bool exports_tunebox_method_training_load_state(method_list_u8_t *state, method_string_t *message) {
    (void)message;
    method_list_u8_free(state);
    return true;
}
