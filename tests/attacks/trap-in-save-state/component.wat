;; Ends itself when it is asked what belongs into a checkpoint.
(func $save-state (result i32) (unreachable))
