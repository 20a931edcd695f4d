//! Sequence processing.

use crate::OpDef;

pub mod ctc_greedy_decoder;
pub mod ctc_greedy_decoder_seq_len;
pub mod ctc_loss;
pub mod gru_cell;
pub mod gru_sequence;
pub mod lstm_cell;
pub mod lstm_sequence;
pub mod one_hot;
pub mod rnn_cell;
pub mod rnn_sequence;
pub mod scaled_dot_product_attention;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &ctc_greedy_decoder::CTC_GREEDY_DECODER,
    &ctc_greedy_decoder_seq_len::CTC_GREEDY_DECODER_SEQ_LEN,
    &ctc_loss::CTC_LOSS,
    &gru_cell::GRU_CELL,
    &gru_sequence::GRU_SEQUENCE,
    &lstm_cell::LSTM_CELL,
    &lstm_sequence::LSTM_SEQUENCE,
    &one_hot::ONE_HOT,
    &rnn_cell::RNN_CELL,
    &rnn_sequence::RNN_SEQUENCE,
    &scaled_dot_product_attention::SCALED_DOT_PRODUCT_ATTENTION,
];
